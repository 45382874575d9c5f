// Where link trials run: each member joins the others over fresh links, runs its part, and what it saw comes back.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "engine/linking.h"
#include "engine/world.h"
#include "tools/link_trial.h"

namespace coprime {

// The ranks that share a clock, and cores.
struct LinkHost {
  std::string name;        // "this host", or its address
  std::vector<int> ranks;  // in rising order
  int cores = 1;
};

class LinkWorld {
 public:
  virtual ~LinkWorld() = default;
  virtual int ranks() const = 0;
  virtual int timeout_ms() const = 0;
  virtual std::vector<LinkHost> hosts() const = 0;
  // Of the links of all trials until now, each once: over which devices, which pairs fell back, why there is no RDMA.
  virtual std::vector<std::string> notes() const = 0;
  // Why a rank takes part in no further trial: "rank 2 (10.0.0.3:5123) hung up". Empty: it does.
  virtual std::string loss(int rank) = 0;
  // Reports by member. One that is lost has a report that says so.
  virtual std::vector<TrialReport> run(const LinkTrial& trial) = 0;
};

struct LinkWorldOptions {
  int ranks = 2;
  Link wish = Link::kAuto;
  int timeout_ms = 750;  // of a gate
  int port = 0;          // rank r listens on port + r; 0: any
  bool wire_auth = false;
  VerbsChoice verbs;  // for ranks whose operator makes none
  LaunchOptions launch;
  RemoteOptions remote;
  Report report;
};

// The ranks of an engine, on this host and on others, that serve trials instead (link_member.h) for as long as this
// object lives. They wait as ranks of an engine do that have one thread each.
class RankedLinkWorld final : public LinkWorld {
 public:
  // Starts and receives the ranks. Error(kLink) naming those that are missing, or two that cannot be joined as wished.
  explicit RankedLinkWorld(const LinkWorldOptions& options);
  ~RankedLinkWorld() override;

  int ranks() const override { return world_.ranks(); }
  int timeout_ms() const override { return options_.timeout_ms; }
  std::vector<LinkHost> hosts() const override;
  std::vector<std::string> notes() const override { return notes_; }
  std::string loss(int rank) override { return world_.answers(rank) ? std::string() : world_.loss(rank); }
  pid_t process(int rank) const { return world_.process(rank); }
  // Error(kUsage) when the vectors do not fit a member's memory.
  std::vector<TrialReport> run(const LinkTrial& trial) override;

 private:
  void report_once(const std::string& line);
  void check_wish() const;
  std::string connect(const LinkTrial& trial, uint32_t members);

  LinkWorldOptions options_;
  std::set<std::string> reported_;
  World world_;
  std::vector<RankFacts> facts_;
  std::vector<std::string> notes_;
  std::set<RankPair> without_verbs_;  // a device that does not carry takes seconds to say so: once is enough
  uint32_t epoch_ = 1;                // of the last trial's links; its floor has the next one
};

}  // namespace coprime
