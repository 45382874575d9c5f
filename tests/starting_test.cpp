// Ranks that die or stand still before the first step: while links are made, while weights are loaded, beside the front
// and far from it. The front names them in time, nobody spins meanwhile, and nothing is left.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <future>

#include "base/clock.h"
#include "engine/linking.h"
#include "large_model.h"
#include "program.h"
#include "running.h"
#include "worlds.h"

namespace coprime {
namespace {

constexpr int kDeadlineMs = 750;
// What docs/gates.md promises for a world that starts, and beyond it 100 ms and a busy machine's scheduling.
constexpr int kStoppedMs = 5000, kSlackMs = 100 + 1000;

// A world of three whose links are made a message at a time, so that every rank is where the test wants it. Rank 2 may
// have joined from elsewhere.
class StepwiseWorld {
 public:
  StepwiseWorld(bool far, Link link) : link_(link) {
    RemoteOptions remote;
    if (far) {
      const std::string port = free_port();
      far_ = std::make_unique<Running>(std::vector<std::string>{"rank", "--join", "127.0.0.1:" + port, "--once"},
                                       scratch_.file("far"));
      remote = {.ranks = 1, .meet = {.endpoint = {"127.0.0.1", static_cast<uint16_t>(std::stoi(port))}}};
    }
    world_ = std::make_unique<World>(kRanks, LaunchOptions{.program = COPRIME_PROGRAM}, remote, nullptr);
    const std::vector<LinkStart> links = link_starts(*world_, remote, {.threads = 1, .gate_timeout_ms = kDeadlineMs});
    for (const LinkStart& start : links) {
      world_->send_json(start.rank, MessageType::kStart,
                        RankStart{.links = start, .model = golden_directory("mini-qwen35"), .pages = 1, .slots = 1});
    }
    for (const Message& message : collect(MessageType::kFacts, "in a test"))
      facts_.push_back(from_json<RankFacts>(message_text(message)));
  }
  ~StepwiseWorld() { end("a test is over"); }

  pid_t process(int rank) const { return rank == 2 && far_ ? far_->pid() : world_->process(rank); }
  std::vector<pid_t> processes() const { return {process(0), process(1), process(2)}; }
  std::string name(int rank) const { return world_->name(rank); }
  Running& far() { return *far_; }
  void signal(int rank, int number) const { ASSERT_EQ(::kill(process(rank), number), 0); }

  // Asks for links, up to the half that the link's kind is made in, while `holder` is stopped: the others cannot come
  // to its end.
  void begin_links(int holder) {
    if (link_ == Link::kShm) signal(holder, SIGSTOP);
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::vector<int> group = link_ == Link::kShm ? std::vector{0, 1, 2} : std::vector<int>{};
      world_->send_json(rank, MessageType::kGroup, RankGroup{1, group, kRanks, rank});
    }
    if (link_ != Link::kShm) {
      collect(MessageType::kShared, "in a test");
      signal(holder, SIGSTOP);
      for (int rank = 0; rank < kRanks; ++rank) world_->send_json(rank, MessageType::kConnect, table(rank));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }

  // Why they did not come about.
  std::string error() {
    try {
      if (link_ == Link::kShm) {
        collect(MessageType::kShared, "while sharing memory");
      } else {
        collect(MessageType::kConnected, "while the ranks were connecting");
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kLink);
      return error.what();
    }
    return "no error";
  }

  // As Front does.
  void end(const std::string& reason) {
    if (world_) world_->stop(reason);
    world_.reset();
  }

 private:
  static constexpr int kRanks = 3;

  std::vector<Message> collect(MessageType type, const std::string& doing) {
    return world_->collect(type, doing, World::until_it_ends(kDeadlineMs));
  }
  LinkTable table(int rank) const {
    LinkTable table;
    for (int peer = 0; peer < kRanks; ++peer) {
      table.peers.push_back({.link = peer == rank ? Link::kAuto : link_,
                             .host = world_->host(peer),
                             .port = facts_[static_cast<size_t>(peer)].port});
    }
    return table;
  }

  Scratch scratch_;
  const Link link_;
  std::unique_ptr<Running> far_;
  std::unique_ptr<World> world_;
  std::vector<RankFacts> facts_;
};

// The victim cannot be done before the holder goes on. The higher rank of a pair dials: a victim above the holder
// stands in the handshake, one below it at its door. One that is the holder itself leaves the others there.
struct Linking {
  const char* name;
  Link link;
  int victim, holder;
  bool far = false;

  bool is_far(int rank) const { return far && rank == 2; }
};

class RankWhoseLinksAreMade : public testing::TestWithParam<Linking> {};

TEST_P(RankWhoseLinksAreMade, is_named_at_once_when_it_is_killed) {
  const Linking& at = GetParam();
  StepwiseWorld world(at.far, at.link);
  const std::vector<pid_t> processes = world.processes();
  world.begin_links(at.holder);
  const int64_t killed_us = now_us();
  world.signal(at.victim, SIGKILL);
  const std::string text = world.error();
  EXPECT_LT(now_us() - killed_us, kSlackMs * 1000) << text;
  EXPECT_EQ(text.find(fmt::format("{} {} while ", world.name(at.victim),
                                  at.is_far(at.victim) ? "hung up" : "was killed by signal 9 (Killed)")),
            0u)
      << text;
  world.end(text);
  for (int rank = 0; rank < (at.far ? 2 : 3); ++rank) EXPECT_FALSE(is_alive(processes[static_cast<size_t>(rank)]));
}

TEST_P(RankWhoseLinksAreMade, is_named_after_its_time_when_it_is_stopped_and_nobody_spins) {
  const Linking& at = GetParam();
  StepwiseWorld world(at.far, at.link);
  const std::vector<pid_t> processes = world.processes();
  world.begin_links(at.holder);
  int64_t ticks = 0;
  for (const pid_t process : processes) ticks -= cpu_ticks(process);
  const int64_t stopped_us = now_us();
  world.signal(at.victim, SIGSTOP);
  if (at.holder != at.victim) world.signal(at.holder, SIGCONT);
  const std::string text = world.error();
  const int64_t took_ms = (now_us() - stopped_us) / 1000;
  for (const pid_t process : processes) ticks += cpu_ticks(process);
  EXPECT_LT(ticks, 100) << "of 500 on each core";
  EXPECT_GE(took_ms, kStoppedMs - 1000) << text;  // not sooner: it may go on; a far one was last heard before
  EXPECT_LT(took_ms, kStoppedMs + kSlackMs) << text;
  EXPECT_EQ(text.find(world.name(at.victim) + " made no progress for "), 0u) << text;
  EXPECT_NE(
      text.find(at.is_far(at.victim) ? "nothing is heard of rank 2"
                                     : fmt::format("process {} is stopped", processes[static_cast<size_t>(at.victim)])),
      std::string::npos)
      << text;
  world.end(text);
  for (int rank = 0; rank < (at.far ? 2 : 3); ++rank) EXPECT_FALSE(is_alive(processes[static_cast<size_t>(rank)]));
  if (!at.far) return;
  const int64_t told_us = now_us();
  EXPECT_EQ(world.far().end(SIGCONT), 4);
  EXPECT_LT(now_us() - told_us, kSlackMs * 1000) << "a rank that waits for its peers hears the front, too";
  EXPECT_NE(world.far().log().find("the world has ended: " + (at.is_far(at.victim) ? "" : text)), std::string::npos)
      << world.far().log();
}

INSTANTIATE_TEST_SUITE_P(States, RankWhoseLinksAreMade,
                         testing::Values(Linking{"offering_memory", Link::kShm, 0, 1},
                                         Linking{"fetching_memory", Link::kShm, 1, 2},
                                         Linking{"letting_in", Link::kTcp, 1, 2},
                                         Linking{"introducing_itself", Link::kTcp, 2, 0},
                                         Linking{"fetching_memory_from_afar", Link::kShm, 2, 1, true},
                                         Linking{"introducing_itself_from_afar", Link::kTcp, 2, 1, true},
                                         Linking{"awaited_from_afar", Link::kTcp, 1, 1, true}),
                         [](const auto& at) { return std::string(at.param.name); });

// The process of a front's rank; waits until there is one.
pid_t rank_process(pid_t front, int rank) {
  const int64_t end_us = now_us() + 60'000'000;
  while (now_us() < end_us) {
    for (const pid_t child : children_of(front)) {
      std::ifstream words(fmt::format("/proc/{}/cmdline", child));
      std::string word;
      std::vector<std::string> all;
      while (std::getline(words, word, '\0')) all.push_back(word);
      if (all.size() == 3 && all[2] == std::to_string(rank)) return child;
    }
    ::usleep(500);
  }
  ADD_FAILURE() << "no rank " << rank;
  return -1;
}

// A model that is read for some hundred milliseconds.
class LargeModel : public ModelCopy {
 public:
  LargeModel() : ModelCopy(golden_directory("llama-9q3kv-tied")) { write_large_model(path()); }
};

std::vector<std::string> bench_words(const std::filesystem::path& model, const std::vector<std::string>& more) {
  std::vector<std::string> words{"bench",
                                 "--model",
                                 model,
                                 "--threads",
                                 "1",
                                 "--repeat",
                                 "1000",
                                 "--prompt-tokens",
                                 "32",
                                 "--decode-tokens",
                                 "100",
                                 "--gate-timeout-ms",
                                 std::to_string(kDeadlineMs)};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class RankThatLoads : public testing::TestWithParam<std::pair<bool, int>> {};  // far, the signal

TEST_P(RankThatLoads, is_named_in_time_and_nothing_is_left) {
  const auto [far, signal] = GetParam();
  const LargeModel model;
  const Scratch scratch;
  const std::string at = "127.0.0.1:" + free_port();
  std::unique_ptr<Running> far_rank;
  if (far) {
    far_rank = std::make_unique<Running>(std::vector<std::string>{"rank", "--join", at, "--once"}, scratch.file("far"));
  }
  Running front(
      bench_words(model.path(), far ? std::vector<std::string>{"--ranks", "3", "--remote", "1", "--listen", at}
                                    : std::vector<std::string>{"--ranks", "3"}),
      scratch.file("front"));
  std::vector<pid_t> processes{rank_process(front.pid(), 0), rank_process(front.pid(), 1)};
  if (!far) processes.push_back(rank_process(front.pid(), 2));
  const pid_t victim = far ? far_rank->pid() : processes[2];
  while (read_bytes(victim) < 24 << 20 && is_alive(victim)) ::usleep(500);  // of some 100 MiB
  const int64_t begin_us = now_us();
  ::kill(victim, signal);
  EXPECT_EQ(front.end(), 4);
  const int64_t took_ms = (now_us() - begin_us) / 1000;
  const std::string text = front.log();
  EXPECT_NE(text.find(" while loading"), std::string::npos) << text;
  const std::string name = far ? "rank 2 (127.0.0.1:" : fmt::format("rank 2 (process {}) ", victim);
  EXPECT_NE(text.find("coprime: " + name), std::string::npos) << text;
  if (signal == SIGKILL) {
    EXPECT_LT(took_ms, kSlackMs);
    EXPECT_NE(text.find(far ? "hung up" : "was killed by signal 9"), std::string::npos) << text;
  } else {
    EXPECT_GE(took_ms, kStoppedMs - 1000);
    EXPECT_LT(took_ms, kStoppedMs + kSlackMs);
    EXPECT_NE(text.find(far ? "nothing is heard of rank 2" : "is stopped: kill -CONT"), std::string::npos) << text;
  }
  for (const pid_t process : processes) EXPECT_FALSE(is_alive(process));
  if (!far || signal == SIGKILL) return;
  EXPECT_EQ(far_rank->end(SIGCONT), 4);
  EXPECT_NE(far_rank->log().find("the world has ended"), std::string::npos) << far_rank->log();
}

INSTANTIATE_TEST_SUITE_P(Ranks, RankThatLoads,
                         testing::Values(std::pair{false, SIGKILL}, std::pair{false, SIGSTOP}, std::pair{true, SIGKILL},
                                         std::pair{true, SIGSTOP}));

// Wherever it finds the rank.
TEST(RankThatStarts, is_named_whenever_it_is_killed_or_stopped) {
  const Scratch scratch;
  for (const int signal : {SIGKILL, SIGSTOP}) {
    for (const int delay_ms : signal == SIGKILL ? std::vector{0, 2, 5, 10, 20, 40, 80, 160} : std::vector{0, 10, 40}) {
      Running front(bench_words(golden_directory("mini-qwen35"), {"--ranks", "3"}), scratch.file("front"));
      std::vector<pid_t> processes;
      for (const int rank : {0, 1, 2}) processes.push_back(rank_process(front.pid(), rank));
      ::usleep(static_cast<useconds_t>(delay_ms) * 1000);
      const int64_t begin_us = now_us();
      ::kill(processes[1], signal);
      EXPECT_EQ(front.end(), 4);
      const int64_t took_ms = (now_us() - begin_us) / 1000;
      const std::string text = front.log();
      if (signal == SIGKILL) {
        EXPECT_LT(took_ms, kSlackMs) << text;
        EXPECT_NE(text.find(fmt::format("rank 1 (process {}) was killed by signal 9", processes[1])), std::string::npos)
            << delay_ms << text;
      } else {
        EXPECT_LT(took_ms, kStoppedMs + kSlackMs) << text;
        EXPECT_NE(text.find(fmt::format("process {} is stopped", processes[1])), std::string::npos) << delay_ms << text;
      }
      for (const pid_t process : processes) EXPECT_FALSE(is_alive(process));
    }
  }
}

// Holds up the first block of weights that comes, and counts them.
class Gatekeeper final : public WeightSink {
 public:
  struct State {
    std::promise<void> came, may_go_on;
    int blocks = 0;
  };
  Gatekeeper(std::unique_ptr<WeightSink> next, State& state) : next_(std::move(next)), state_(state) {}
  void rows(int64_t first, int64_t count, std::span<const std::byte> bytes) override {
    if (state_.blocks++ == 0) {
      state_.came.set_value();
      state_.may_go_on.get_future().wait();
    }
    next_->rows(first, count, bytes);
  }

 private:
  std::unique_ptr<WeightSink> next_;
  State& state_;
};

TEST(LoadingRank, ends_at_the_next_block_when_the_front_says_stop) {
  auto [front, rank_end] = Channel::make_pair();
  Gatekeeper::State state;
  RankPlacement placement;
  placement.hooks.filter = [&](const LocalTensor&, std::unique_ptr<WeightSink> sink) {
    return std::make_unique<Gatekeeper>(std::move(sink), state);
  };
  const auto page = std::make_shared<const ProgressPage>(ProgressPage::create(1));
  auto ending = std::async(std::launch::async, [&] { return run_rank(rank_end, page, placement); });

  const auto say = [&](MessageType type, const std::string& text) {
    front.send(static_cast<uint32_t>(type), std::as_bytes(std::span(text)));
  };
  const auto hear = [&](MessageType type) {
    Message message;
    ASSERT_EQ(front.receive(message, 60'000), Channel::Received::kMessage);
    ASSERT_EQ(message.type, static_cast<uint32_t>(type)) << message_text(message);
  };
  RankStart start{.model = golden_directory("mini-qwen35"), .pages = 1, .slots = 1};
  start.links.world = std::string(32, '0');
  start.links.key = std::string(64, '0');
  say(MessageType::kStart, to_json(start));
  hear(MessageType::kFacts);
  say(MessageType::kGroup, to_json(RankGroup{}));
  hear(MessageType::kShared);
  say(MessageType::kConnect, to_json(LinkTable{.peers = {{}}}));
  hear(MessageType::kConnected);
  state.came.get_future().wait();
  say(MessageType::kStop, "enough");
  state.may_go_on.set_value();
  const RankEnding ended = ending.get();
  EXPECT_EQ(ended.why, RankEnding::Why::kDismissed);
  EXPECT_EQ(ended.reason, "enough");
  EXPECT_EQ(state.blocks, 1);
}

}  // namespace
}  // namespace coprime
