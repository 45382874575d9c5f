#include "net/host_namespace.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <thread>

#include "base/error.h"

namespace coprime {
namespace {

constexpr const char* kCard = "tun0";

[[noreturn]] void refuse(const std::string& what) {
  throw std::runtime_error(
      fmt::format("test hosts: {}: {}; they need root (CAP_SYS_ADMIN and CAP_NET_ADMIN) and /dev/net/tun: run the "
                  "tests as root, in "
                  "a container with --privileged --device /dev/net/tun",
                  what, errno_text(errno)));
}

void run_on_thread(const std::function<void()>& act) {
  std::exception_ptr error;
  std::thread thread([&] {
    try {
      act();
    } catch (...) {
      error = std::current_exception();
    }
  });
  thread.join();
  if (error) std::rethrow_exception(error);
}

ifreq request_for(const char* device) {
  ifreq request = {};
  std::strncpy(request.ifr_name, device, IFNAMSIZ - 1);
  return request;
}

void change_flags(const char* device, bool up) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = request_for(device);
  if (::ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0) refuse(fmt::format("cannot read {}'s flags", device));
  request.ifr_flags = static_cast<short>(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
  if (::ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0) refuse(fmt::format("cannot set {}'s flags", device));
}

void set_address(const char* device, unsigned long what, const std::string& text) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = request_for(device);
  sockaddr_in address{.sin_family = AF_INET};
  if (::inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1) refuse(text + " is no address");
  std::memcpy(&request.ifr_addr, &address, sizeof address);
  if (::ioctl(socket.get(), what, &request) != 0) refuse(fmt::format("cannot give {} the address {}", device, text));
}

UniqueFd make_card() {
  UniqueFd card(::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!card) refuse("cannot open /dev/net/tun");
  ifreq request = request_for(kCard);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (::ioctl(card.get(), TUNSETIFF, &request) != 0) refuse("cannot make a TUN device");
  return card;
}

}  // namespace

HostNamespace::HostNamespace(const std::string& address) {
  run_on_thread([&] {  // a namespace is a thread's; the device stays in the one that it was made in
    if (::unshare(CLONE_NEWNET) != 0) refuse("cannot make a network namespace");
    space_ = UniqueFd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (!space_) refuse("cannot open the new namespace");
    change_flags("lo", true);
    card_ = make_card();
    set_address(kCard, SIOCSIFADDR, address);
    set_address(kCard, SIOCSIFNETMASK, "255.255.255.0");
    change_flags(kCard, true);
  });
}

void HostNamespace::run(const std::function<void()>& act) const {
  run_on_thread([&] {
    if (::setns(space_.get(), CLONE_NEWNET) != 0) refuse("cannot enter a host's namespace");
    act();
  });
}

void HostNamespace::set_link(bool up) const {
  run([up] { change_flags(kCard, up); });
}

}  // namespace coprime
