// What the tests and the bench share: a world of ranks on this host, as threads or as forked processes, joined by any
// link, or by several.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gate/exchange.h"
#include "transport/authenticated_queue_pair.h"
#include "transport/mesh.h"
#include "transport/progress_page.h"
#include "transport/shm/shm_region.h"
#include "transport/soft_uc/soft_uc_queue_pair.h"
#include "transport/tcp/tcp_queue_pair.h"
#include "transport/ucx/ucx.h"

namespace coprime::testing {

// kMixed: the first two thirds of the ranks share memory, the others and they are joined by TCP. kUc and kApple: soft
// UC as the standard has it, with a cap of 16 KiB, and as between Macs. kSealed: TCP with authenticated messages,
// kSealedUc: UC with them. kUcx: UCX over what it finds on this host.
enum class Link { kShm, kTcp, kMixed, kUc, kApple, kSealed, kSealedUc, kUcx };
inline const char* link_name(Link link) {
  switch (link) {
    case Link::kShm:
      return "shm";
    case Link::kTcp:
      return "tcp";
    case Link::kMixed:
      return "mixed";
    case Link::kUc:
      return "uc";
    case Link::kApple:
      return "apple";
    case Link::kSealed:
      return "sealed";
    case Link::kSealedUc:
      return "sealed_uc";
    case Link::kUcx:
      return "ucx";
  }
  return "?";
}

// A schedule of one gate, whose slot holds slot_bytes.
inline GateSchedule one_gate(size_t slot_bytes) {
  return {{.kind = GateKind::kFfn, .layer = 3, .row_bytes = static_cast<int64_t>(slot_bytes), .max_rows = 1}};
}

// The device at rank `rank`'s end of its pair with `peer`.
using SoftUcOptionsFn = std::function<SoftUcOptions(int rank, int peer)>;

// What the front owns. Each rank calls join() in its own thread or process.
class TestWorld {
 public:
  TestWorld(Link link, int ranks, size_t slot_bytes) : TestWorld(link, ranks, one_gate(slot_bytes)) {}
  // `device`: of the soft UC links, if not the link's usual one.
  TestWorld(Link link, int ranks, GateSchedule schedule, SoftUcOptionsFn device = {})
      : link_(link),
        ranks_(ranks),
        sharing_(link == Link::kShm     ? ranks
                 : link == Link::kMixed ? (2 * ranks + 2) / 3
                                        : 0),
        schedule_(std::move(schedule)),
        device_(std::move(device)),
        progress_(std::make_shared<const ProgressPage>(ProgressPage::create(ranks))) {
    if (sharing_ > 0) {
      region_ = std::make_shared<const ShmRegion>(ShmRegion::create(sharing_, largest_slot_bytes(schedule_)));
    }
    if (sharing_ == ranks) return;
    listen(listeners_, endpoints_);
    if (is_uc()) listen(wire_listeners_, wire_endpoints_);
  }

  int ranks() const { return ranks_; }
  Link link() const { return link_; }
  const GateSchedule& schedule() const { return schedule_; }
  const ProgressPage& progress() const { return *progress_; }

  ExchangeSettings settings(int timeout_ms = 20'000) const {
    return {.wait = choose_wait_policy(usable_cores(), ranks_, 1), .timeout_ms = timeout_ms};
  }
  std::unique_ptr<Exchange> join(int rank) const { return join(rank, settings()); }
  std::unique_ptr<Exchange> join(int rank, const ExchangeSettings& settings) const {
    return join(rank, settings, progress_);
  }
  // On a page of its own: a rank of another host.
  std::unique_ptr<Exchange> join(int rank, const ExchangeSettings& settings,
                                 std::shared_ptr<const ProgressPage> page) const {
    WorldLinks links{.rank = rank, .ranks = ranks_};
    if (rank < sharing_) {
      links.region = region_;
      for (int peer = 0; peer < sharing_; ++peer) links.region_ranks.push_back(peer);
    }
    if (sharing_ < ranks_) {
      auto mesh = connect(rank, listeners_, endpoints_);
      auto wires = is_uc() ? connect(rank, wire_listeners_, wire_endpoints_) : std::vector<MeshConnection>(mesh.size());
      for (int peer = 0; peer < ranks_; ++peer) {
        auto& [socket, session_key] = mesh[static_cast<size_t>(peer)];
        links.peers.push_back({.socket = std::move(socket)});
        PeerConnection& connection = links.peers.back();
        if (!connection.socket) continue;
        if (is_uc()) {
          auto device = std::make_shared<SoftUcDevice>(device_options(rank, peer));
          connection.pair = connect_soft_uc(std::move(device), std::move(wires[static_cast<size_t>(peer)].socket));
        }
        if (link_ == Link::kUcx)
          connection.pair = connect_ucx(open_ucx(), std::move(connection.socket), settings.epoch, rank, peer, 20'000);
        if (link_ == Link::kSealed) {
          connection.pair = std::make_unique<TcpQueuePair>(std::move(connection.socket), settings.epoch);
        }
        if (link_ == Link::kSealed || link_ == Link::kSealedUc) {
          const AuthenticatedQueuePair::Session session{session_key->bytes(), settings.epoch, rank, peer};
          connection.pair = std::make_unique<AuthenticatedQueuePair>(std::move(connection.pair), session,
                                                                     largest_slot_bytes(schedule_));
        }
      }
      links.windowed = is_uc();
    }
    return std::make_unique<Exchange>(std::move(links), schedule_, std::move(page), settings);
  }

 private:
  bool is_uc() const { return link_ == Link::kUc || link_ == Link::kApple || link_ == Link::kSealedUc; }
  SoftUcOptions device_options(int rank, int peer) const {
    if (device_) return device_(rank, peer);
    if (link_ == Link::kApple) return apple_uc_options();
    return {.max_message_bytes = 16 * 1024};
  }

  void listen(std::vector<Listener>& listeners, std::vector<Endpoint>& endpoints) const {
    for (int rank = 0; rank < ranks_; ++rank) {
      listeners.push_back(Listener::open({"127.0.0.1", 0}, false, "choose another port"));
      endpoints.push_back(listeners.back().address().endpoint());
    }
  }
  std::vector<MeshConnection> connect(int rank, const std::vector<Listener>& listeners,
                                      const std::vector<Endpoint>& endpoints) const {
    const Membership me{rank, ranks_, world_, key_};
    return connect_mesh(listeners[static_cast<size_t>(rank)], endpoints, (1u << ranks_) - 1, me, 20'000, [] {});
  }

  Link link_;
  int ranks_, sharing_;
  GateSchedule schedule_;
  SoftUcOptionsFn device_;
  std::shared_ptr<const ProgressPage> progress_;
  std::shared_ptr<const ShmRegion> region_;
  WorldId world_ = make_world_id();
  SecretKey key_ = make_secret_key();
  std::vector<Listener> listeners_, wire_listeners_;  // the wires of soft UC have connections of their own
  std::vector<Endpoint> endpoints_, wire_endpoints_;
};

// A world of one.
inline std::unique_ptr<Exchange> lone_exchange(GateSchedule schedule) {
  auto progress = std::make_shared<const ProgressPage>(ProgressPage::create(1));
  return std::make_unique<Exchange>(WorldLinks{}, std::move(schedule), std::move(progress), ExchangeSettings{});
}

// Runs body(rank) in one thread a rank. An exception of a rank ends the program.
inline void run_threads(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

// Forked children, each of which runs body() and exits with its result. Those that still run are killed by the
// destructor.
class Processes {
 public:
  Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes() {
    for (const pid_t child : children_) {
      if (child <= 0) continue;
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }

  void start(const std::function<int()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
      int status = 99;
      try {
        status = body();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "child: %s\n", error.what());
      }
      std::fflush(nullptr);
      ::_exit(status);
    }
    children_.push_back(child);
  }
  pid_t id(int index) const { return children_.at(static_cast<size_t>(index)); }

  // The exit status, or 1000 + the signal that ended it.
  int wait(int index) {
    int status = 0;
    ::waitpid(std::exchange(children_.at(static_cast<size_t>(index)), -1), &status, 0);
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  std::vector<pid_t> children_;
};

// Runs body(rank) in one process a rank; the exit statuses.
inline std::vector<int> run_processes(int ranks, const std::function<int(int)>& body) {
  Processes processes;
  for (int rank = 0; rank < ranks; ++rank) processes.start([&] { return body(rank); });
  std::vector<int> statuses;
  for (int rank = 0; rank < ranks; ++rank) statuses.push_back(processes.wait(rank));
  return statuses;
}

}  // namespace coprime::testing
