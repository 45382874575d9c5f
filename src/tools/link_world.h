// Where link trials run: each member joins the others over fresh links, runs its part, and what it saw comes back.
#pragma once

#include <span>
#include <vector>

#include "tools/link_trial.h"

namespace coprime {

class LinkWorld {
 public:
  virtual ~LinkWorld() = default;
  virtual int ranks() const = 0;
  virtual int timeout_ms() const = 0;
  // Whether the clocks of two ranks are one, so that one way can be timed; else it is half of there and back.
  virtual bool one_clock(int a, int b) const = 0;
  // Reports by member; members[0] is rank 0 of the trial. A member that is lost has a report that says so.
  virtual std::vector<TrialReport> run(const LinkTrial& trial, std::span<const int> members) = 0;
};

struct LocalLinkOptions {
  int ranks = 2;
  bool tcp = false;  // else shared memory
  int timeout_ms = 750;
};

// Ranks of this host, a process each, forked for every trial and gone after it. They wait as ranks of an engine do that
// have one thread each. Error(kUsage) from run() when the vectors do not fit the memory that is available.
class LocalLinkWorld final : public LinkWorld {
 public:
  explicit LocalLinkWorld(const LocalLinkOptions& options) : options_(options) {}
  int ranks() const override { return options_.ranks; }
  int timeout_ms() const override { return options_.timeout_ms; }
  bool one_clock(int, int) const override { return true; }
  std::vector<TrialReport> run(const LinkTrial& trial, std::span<const int> members) override;

 private:
  LocalLinkOptions options_;
};

}  // namespace coprime
