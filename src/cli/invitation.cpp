#include "cli/invitation.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "transport/host_identity.h"

namespace coprime {
namespace {

using nlohmann::json;

constexpr int64_t kTryUs = 1'000'000;  // each address, each round

std::vector<std::string> own_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) fail(ErrorKind::kInternal, "this host's addresses: {}", errno_text(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<std::string> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const bool usable = entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_INET &&
                        (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0;
    if (usable) addresses.push_back(Address(entry->ifa_addr, sizeof(sockaddr_in)).endpoint().host);
  }
  return addresses;
}

}  // namespace

Invitation make_invitation(const SecretKey& key, int port) {
  return {.key = to_hex(key), .port = port, .host = host_identity(), .addresses = own_addresses()};
}

std::string to_text(const Invitation& invitation) {
  return json{{"key", invitation.key},
              {"port", invitation.port},
              {"host", invitation.host},
              {"addresses", invitation.addresses}}
      .dump();
}

Invitation invitation_from_text(const std::string& text) {
  try {
    const json object = json::parse(text);
    return {.key = object.at("key").get<std::string>(),
            .port = object.at("port").get<uint16_t>(),
            .host = object.at("host").get<std::string>(),
            .addresses = object.at("addresses").get<std::vector<std::string>>()};
  } catch (const json::exception&) {
    fail(ErrorKind::kLink, "what the front published is no invitation: run the same coprime on all hosts");
  }
}

Endpoint reachable(const Invitation& invitation) {
  std::vector<std::string> hosts;
  if (invitation.host == host_identity()) hosts.push_back("127.0.0.1");
  hosts.insert(hosts.end(), invitation.addresses.begin(), invitation.addresses.end());
  std::string tried;
  for (int round = 0; round < 2; ++round) {
    tried.clear();
    for (const std::string& host : hosts) {
      const Endpoint endpoint{host, static_cast<uint16_t>(invitation.port)};
      try {
        dial_until(endpoint, Traffic::kControl, now_us() + kTryUs);
        return endpoint;
      } catch (const Error& error) {
        tried += fmt::format("{}{}", tried.empty() ? "" : "; ", error.what());
      }
    }
  }
  fail(ErrorKind::kLink, "the front is not reached from here ({}): give --listen and --key-file",
       tried.empty() ? "its host has no address" : tried);
}

}  // namespace coprime
