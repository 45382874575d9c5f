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
#include "transport/mesh.h"
#include "transport/progress_page.h"
#include "transport/shm/shm_region.h"

namespace coprime::testing {

// kMixed: the first two thirds of the ranks share memory, the others and they are joined by TCP.
enum class Link { kShm, kTcp, kMixed };
inline const char* link_name(Link link) {
  switch (link) {
    case Link::kShm:
      return "shm";
    case Link::kTcp:
      return "tcp";
    case Link::kMixed:
      return "mixed";
  }
  return "?";
}

// A schedule of one gate, whose slot holds slot_bytes.
inline GateSchedule one_gate(size_t slot_bytes) {
  return {{.kind = GateKind::kFfn, .layer = 3, .row_bytes = static_cast<int64_t>(slot_bytes), .max_rows = 1}};
}

// What the front owns. Each rank calls join() in its own thread or process.
class TestWorld {
 public:
  TestWorld(Link link, int ranks, size_t slot_bytes) : TestWorld(link, ranks, one_gate(slot_bytes)) {}
  TestWorld(Link link, int ranks, GateSchedule schedule)
      : link_(link),
        ranks_(ranks),
        sharing_(link == Link::kShm   ? ranks
                 : link == Link::kTcp ? 0
                                      : (2 * ranks + 2) / 3),
        schedule_(std::move(schedule)),
        progress_(std::make_shared<const ProgressPage>(ProgressPage::create(ranks))) {
    if (sharing_ > 0) {
      region_ = std::make_shared<const ShmRegion>(ShmRegion::create(sharing_, largest_slot_bytes(schedule_)));
    }
    if (sharing_ == ranks) return;
    for (int rank = 0; rank < ranks; ++rank) {
      listeners_.push_back(Listener::open({"127.0.0.1", 0}, false, "choose another port"));
      endpoints_.push_back(listeners_.back().address().endpoint());
    }
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
    WorldLinks links{.rank = rank, .ranks = ranks_};
    if (rank < sharing_) {
      links.region = region_;
      for (int peer = 0; peer < sharing_; ++peer) links.region_ranks.push_back(peer);
    }
    if (sharing_ < ranks_) {
      const Membership me{rank, ranks_, world_, key_};
      auto mesh = connect_mesh(listeners_[static_cast<size_t>(rank)], endpoints_, (1u << ranks_) - 1, me, 20'000);
      for (MeshConnection& connection : mesh) links.peers.push_back({.socket = std::move(connection.socket)});
    }
    return std::make_unique<Exchange>(std::move(links), schedule_, progress_, settings);
  }

 private:
  Link link_;
  int ranks_, sharing_;
  GateSchedule schedule_;
  std::shared_ptr<const ProgressPage> progress_;
  std::shared_ptr<const ShmRegion> region_;
  WorldId world_ = make_world_id();
  SecretKey key_ = make_secret_key();
  std::vector<Listener> listeners_;
  std::vector<Endpoint> endpoints_;
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
