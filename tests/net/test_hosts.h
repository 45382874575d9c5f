// Hosts of their own on this machine, for tests: network namespaces joined by a relay that delays, drops and cuts.
// Programs run on them as on machines that share nothing but the file system. Needs root (see HostNamespace).
//
//   TestHosts hosts(2);
//   HostProgram server = hosts.start(1, {"/usr/bin/server", hosts.address(1)});
//   hosts.delay_us(20'000);
//   hosts.cut(0, 1);
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/host_namespace.h"
#include "net/relay.h"

namespace coprime {

// A program that was started on a test host. What it writes is kept until asked for. It is killed with the object, and
// with the test's thread that started it; its own children are the program's to end.
class HostProgram {
 public:
  HostProgram(int space, const std::vector<std::string>& words);
  HostProgram(HostProgram&& other) noexcept;
  ~HostProgram();

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // The exit code (128 + the signal that killed it), or nothing when it still runs after timeout_ms.
  std::optional<int> wait(int timeout_ms);
  std::string out() const { return text(out_); }
  std::string err() const { return text(err_); }
  // Whether `words` stand in what it wrote to either stream, within timeout_ms.
  bool says(const std::string& words, int timeout_ms) const;

 private:
  static std::string text(const UniqueFd& file);

  UniqueFd out_, err_;  // files in memory
  pid_t pid_ = 0;
  std::optional<int> exit_code_;
};

class TestHosts {
 public:
  explicit TestHosts(int hosts);

  int count() const { return static_cast<int>(hosts_.size()); }
  std::string address(int host) const;

  HostProgram start(int host, const std::vector<std::string>& words) const;
  // Runs `act` on a thread of the host and waits for it.
  void run(int host, const std::function<void()>& act) const { hosts_[static_cast<size_t>(host)]->run(act); }

  // The cable between two hosts, both ways: packets vanish, nobody is told.
  void cut(int a, int b) { set_cut(a, b, true); }
  void join(int a, int b) { set_cut(a, b, false); }
  // The link of a host's own card: its kernel knows that it is down.
  void set_link(int host, bool up) const { hosts_[static_cast<size_t>(host)]->set_link(up); }
  void delay_us(int64_t us);  // of every packet, one way
  void loss(double share);    // of all packets that are dropped

  const Relay::Way& way(int from, int to) { return relay_->way(from, to); }

 private:
  void set_cut(int a, int b, bool cut);
  void for_each_way(const std::function<void(Relay::Way&)>& act);

  std::vector<std::unique_ptr<HostNamespace>> hosts_;
  std::unique_ptr<Relay> relay_;  // ends before the cards that it reads
};

}  // namespace coprime
