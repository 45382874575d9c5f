// Ranks that die or stand still, a front that dies, memory while loading: no hang, no orphan, and the culprit by name.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "large_model.h"
#include "program.h"
#include "worlds.h"

namespace coprime {
namespace {

WorldOptions process_world(int ranks, Link link) {
  static const Golden golden = read_golden("mini-qwen35");
  WorldOptions options = thread_world(golden, ranks);
  options.link = link;
  options.sequences = 1;
  options.context = 4096;
  options.gate_timeout_ms = 1000;
  options.launch = {.as = RanksAs::kProcesses, .program = COPRIME_PROGRAM};
  return options;
}

// Decodes until an error comes, while `act` does its worst from another thread. Returns the error's text.
std::string decode_while(Front& front, const std::function<void()>& act) {
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    act();
  });
  std::string text = "no error";
  try {
    for (int round = 0; round < 1000; ++round) {
      generate(front, {.prompt = {572, 1, 2, 3}, .max_tokens = 2000});
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kLink) << error.what();
    text = error.what();
  }
  other.join();
  return text;
}

class DeadRank : public testing::TestWithParam<std::tuple<Link, int, int>> {};  // link, ranks, the victim

TEST_P(DeadRank, killed_in_the_middle_is_named_at_once_and_nothing_is_left) {
  const auto [link, ranks, victim] = GetParam();
  std::vector<pid_t> processes;
  {
    Front front(process_world(ranks, link));
    for (int rank = 0; rank < ranks; ++rank) processes.push_back(front.process(rank));
    int64_t killed_us = 0;
    const std::string text = decode_while(front, [&, v = victim] {
      killed_us = now_us();
      ::kill(front.process(v), SIGKILL);
    });
    EXPECT_LT(now_us() - killed_us, 900'000) << "later than a deadline";
    EXPECT_NE(text.find(fmt::format("rank {} (process {}) was killed by signal 9", victim,
                                    processes[static_cast<size_t>(victim)])),
              std::string::npos)
        << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
  for (pid_t process : processes) EXPECT_FALSE(is_alive(process));
}

TEST_P(DeadRank, stopped_in_the_middle_is_named_after_the_deadline_and_nothing_is_left) {
  const auto [link, ranks, victim] = GetParam();
  std::vector<pid_t> processes;
  {
    Front front(process_world(ranks, link));
    for (int rank = 0; rank < ranks; ++rank) processes.push_back(front.process(rank));
    int64_t stopped_us = 0;
    const std::string text = decode_while(front, [&, v = victim] {
      stopped_us = now_us();
      ::kill(front.process(v), SIGSTOP);
    });
    EXPECT_LT(now_us() - stopped_us, 6'000'000);
    EXPECT_NE(text.find(fmt::format("rank {}", victim)), std::string::npos) << text;
    EXPECT_NE(text.find("stopped"), std::string::npos) << text;
    // Nearly always in a gate; between two steps nobody but the front waits for it.
    const auto has = [&](const char* word) { return text.find(word) != std::string::npos; };
    const bool in_gate = has("gate") && (has("layer") || has("EMBED"));  // the embedding's gate has no layer
    EXPECT_TRUE(in_gate || text.find("made no progress") != std::string::npos) << text;
  }
  for (pid_t process : processes) EXPECT_FALSE(is_alive(process));
}

INSTANTIATE_TEST_SUITE_P(Worlds, DeadRank,
                         testing::Values(std::tuple{Link::kShm, 3, 0}, std::tuple{Link::kShm, 3, 2},
                                         std::tuple{Link::kTcp, 3, 1}, std::tuple{Link::kTcp, 2, 0},
                                         std::tuple{Link::kShm, 1, 0}));

TEST(DeadFront, takes_its_ranks_along) {
  for (Link link : {Link::kShm, Link::kTcp}) {
    int fds[2];
    ASSERT_EQ(::pipe(fds), 0);
    const pid_t front_process = ::fork();
    if (front_process == 0) {
      Front front(process_world(3, link));
      for (int rank = 0; rank < 3; ++rank) {
        const pid_t pid = front.process(rank);
        if (::write(fds[1], &pid, sizeof pid) != sizeof pid) ::_exit(1);
      }
      for (;;) generate(front, {.prompt = {572, 1, 2, 3}, .max_tokens = 2000});
    }
    ::close(fds[1]);
    std::array<pid_t, 3> ranks{};
    for (pid_t& rank : ranks) EXPECT_EQ(::read(fds[0], &rank, sizeof rank), static_cast<ssize_t>(sizeof rank));
    ::close(fds[0]);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    ::kill(front_process, SIGKILL);
    ::waitpid(front_process, nullptr, 0);
    const int64_t end_us = now_us() + 2'000'000;
    for (pid_t rank : ranks) {
      while (is_alive(rank) && now_us() < end_us) ::usleep(1000);
      EXPECT_FALSE(is_alive(rank));
    }
  }
}

TEST(IdleFront, costs_no_processor_time) {
  for (Link link : {Link::kShm, Link::kTcp}) {
    Front front(process_world(3, link));
    generate(front, {.prompt = {572, 1, 2, 3}, .max_tokens = 5});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::array<int64_t, 3> before{};
    for (int rank = 0; rank < 3; ++rank) before[static_cast<size_t>(rank)] = cpu_ticks(front.process(rank));
    std::this_thread::sleep_for(std::chrono::seconds(1));
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_LE(cpu_ticks(front.process(rank)) - before[static_cast<size_t>(rank)], 1) << rank;
  }
}

TEST(World, is_refused_when_a_port_is_taken) {
  const UniqueFd taken(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(taken.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(taken.get(), 1), 0);
  ASSERT_EQ(::getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);

  WorldOptions options = process_world(3, Link::kTcp);
  options.port = ntohs(address.sin_port);
  try {
    Front front(options);
    FAIL() << "the port was taken twice";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kLink);
    for (const std::string words : {"cannot listen on 127.0.0.1:", "in use", "--port"}) {  // maybe the next ports, too
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
}

TEST(Loading, keeps_a_ranks_memory_within_its_shard_and_64_MiB) {
  const ModelCopy model(golden_directory("llama-9q3kv-tied"));
  write_large_model(model.path());
  WorldOptions options = process_world(3, Link::kShm);
  options.model = model.path();
  options.context = 64;
  options.gate_timeout_ms = 60'000;

  std::map<pid_t, int64_t> peaks;
  std::atomic<bool> done{false};
  std::thread watcher([&] {
    while (!done) {
      for (pid_t child : children_of(::getpid())) peaks[child] = std::max(peaks[child], anonymous_bytes(child));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  Front front(options);
  done = true;
  watcher.join();
  for (int rank = 0; rank < 3; ++rank) {
    const int64_t shard = front.ranks()[static_cast<size_t>(rank)].weight_bytes, peak = peaks[front.process(rank)];
    EXPECT_GT(shard, 80 << 20);
    EXPECT_GT(peak, shard / 2);  // it was watched
    EXPECT_LE(peak, shard + (64 << 20)) << "rank " << rank;
  }
}

}  // namespace
}  // namespace coprime
