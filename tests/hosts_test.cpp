// Worlds whose ranks come from elsewhere, with the real program: joining by address and key, who is refused and why,
// launchers (mpirun, ssh) that start the processes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <fstream>

#include "base/clock.h"
#include "checkpoint/safetensors.h"
#include "engine/world.h"
#include "program.h"
#include "running.h"
#include "worlds.h"

namespace coprime {
namespace {

const std::string kModel = golden_directory("mini-qwen35");

std::vector<std::string> generate_words(const std::vector<std::string>& more) {
  std::vector<std::string> words{"generate",      "--model", kModel,         "--prompt", "What is 2 plus 3?",
                                 "--temperature", "0",       "--max-tokens", "12",       "--exact"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A command that computes for many seconds.
std::vector<std::string> long_words(const Scratch& scratch, const std::vector<std::string>& more) {
  const std::vector<int32_t> ids(8 * 4000, 7);
  const TensorToWrite tensor{"ids", DType::kI32, {8, 4000}, std::as_bytes(std::span(ids))};
  write_safetensors(scratch.file("ids"), {&tensor, 1});
  std::vector<std::string> words{
      "logits",          "--model", kModel, "--ids", scratch.file("ids") + ":ids", "--out", scratch.file("logits"),
      "--prefill-chunk", "16"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string answer_of_one_rank() {
  static const std::string answer = run_program(generate_words({})).out;
  return answer;
}

TEST(Join, ranks_by_address_and_key_give_the_same_answer_again_and_again) {
  const Scratch scratch;
  const std::string key = scratch.key("key"), port = free_port();
  Running one({"rank", "--join", "127.0.0.1:" + port, "--key-file", key}, scratch.file("one"));
  Running two({"rank", "--join", "127.0.0.1:" + port, "--key-file", key, "--model", kModel, "--threads", "1"},
              scratch.file("two"));
  for (const std::string link : {"auto", "tcp"}) {
    const ProgramResult result =
        run_program(generate_words({"--ranks", "3", "--remote", "2", "--listen", "0.0.0.0:" + port, "--key-file", key,
                                    "--link", link, "--stats"}));
    EXPECT_EQ(result.exit_code, 0) << result.err << one.log() << two.log();
    EXPECT_EQ(result.out, answer_of_one_rank());
    EXPECT_NE(result.err.find(link == "tcp" ? "tcp 0-1, 0-2, 1-2" : "shm 0-1, 0-2, 1-2"), std::string::npos)
        << result.err;
  }
  EXPECT_EQ(one.end(SIGTERM), 0) << one.log();
  EXPECT_EQ(two.end(SIGINT), 0) << two.log();
}

TEST(Join, a_rank_serves_measurements_of_links_and_engines_alike) {
  const Scratch scratch;
  const std::string key = scratch.key("key"), at = "127.0.0.1:" + free_port();
  Running rank({"rank", "--join", at, "--key-file", key}, scratch.file("rank"));
  const std::vector<std::string> world{"--ranks", "3", "--remote", "1", "--listen", at, "--key-file", key};
  for (const std::string command : {"link", "generate", "link"}) {
    std::vector<std::string> words =
        command == "link"
            ? std::vector<std::string>{"link", "--sizes", "4K", "--repeat", "5", "--gate-timeout-ms", "20000"}
            : generate_words({});
    words.insert(words.end(), world.begin(), world.end());
    const ProgramResult result = run_program(words);
    EXPECT_EQ(result.exit_code, 0) << result.err << rank.log();
    EXPECT_EQ(result.err, "");
    if (command == "generate") {
      EXPECT_EQ(result.out, answer_of_one_rank());
    } else {
      EXPECT_NE(result.out.find("shm 0-1, 0-2, 1-2"), std::string::npos) << result.out;
    }
  }
  EXPECT_EQ(rank.end(SIGTERM), 0) << rank.log();
}

TEST(Join, whoever_measures_links_refuses_another_key_and_both_sides_say_so) {
  const Scratch scratch;
  const std::string key = scratch.key("key"), other = scratch.key("other"), at = "127.0.0.1:" + free_port();
  Running link({"link", "--ranks", "2", "--remote", "1", "--listen", at, "--key-file", key, "--join-timeout", "5"},
               scratch.file("link"));
  const ProgramResult rank = run_program({"rank", "--join", at, "--key-file", other, "--once"});
  EXPECT_EQ(rank.exit_code, 4);
  EXPECT_NE(rank.err.find("holds another key"), std::string::npos) << rank.err;
  EXPECT_TRUE(link.says("holds another key")) << link.log();
  EXPECT_EQ(link.end(), 4);
  EXPECT_NE(link.log().find("rank 1 did not join"), std::string::npos) << link.log();
}

TEST(Join, with_wire_auth_the_answer_is_the_same_and_the_links_say_so) {
  const Scratch scratch;
  const std::string key = scratch.key("key"), at = "127.0.0.1:" + free_port();
  Running rank({"rank", "--join", at, "--key-file", key, "--once"}, scratch.file("rank"));
  const ProgramResult result = run_program(generate_words(
      {"--ranks", "3", "--remote", "1", "--listen", at, "--key-file", key, "--link", "tcp", "--wire-auth", "--stats"}));
  EXPECT_EQ(result.exit_code, 0) << result.err << rank.log();
  EXPECT_EQ(result.out, answer_of_one_rank());
  EXPECT_NE(result.err.find("authenticated 0-1, 0-2, 1-2"), std::string::npos) << result.err;
  EXPECT_EQ(rank.end(), 0) << rank.log();
}

// Rank 0 fails for a reason of its own; the far one would be awaited for a minute.
TEST(Join, a_rank_that_is_not_heard_is_not_waited_for_once_another_has_failed) {
  const Scratch scratch;
  const std::string port = free_port();
  Running far({"rank", "--join", "127.0.0.1:" + port, "--once"}, scratch.file("far"));
  World world(2, {.program = COPRIME_PROGRAM},
              {.ranks = 1, .meet = {.endpoint = {"127.0.0.1", static_cast<uint16_t>(std::stoi(port))}}}, {});
  ::kill(far.pid(), SIGSTOP);
  world.send(0, MessageType::kStep, {});
  const int64_t start_us = now_us();
  const std::vector<RankReport> reports =
      world.listen(MessageType::kResult, {.quiet_ms = 60'000, .after_failure_ms = 60'000, .silent_ms = 1000});
  EXPECT_LT(now_us() - start_us, 30'000'000);
  EXPECT_EQ(reports[0].kind, RankReport::Kind::kFailed);
  EXPECT_EQ(reports[1].kind, RankReport::Kind::kMissing);
  const std::string why = world.explain(reports, "in a test", 0).value().what();
  EXPECT_NE(why.find("nothing is heard of rank 1 (127.0.0.1"), std::string::npos) << why;
}

TEST(Join, the_front_soon_says_who_is_missing_and_gives_up_after_its_time) {
  const std::string port = free_port();
  const ProgramResult result = run_program(
      generate_words({"--ranks", "3", "--remote", "2", "--listen", "127.0.0.1:" + port, "--join-timeout", "2"}));
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_NE(result.err.find("waiting for ranks 1, 2 of 3 to join at 127.0.0.1:" + port), std::string::npos);
  EXPECT_NE(result.err.find("ranks 1, 2 did not join"), std::string::npos) << result.err;
}

TEST(Join, who_is_refused_learns_the_reason_and_so_does_the_front) {
  const Scratch scratch;
  const std::string key = scratch.key("key"), other = scratch.key("other"), port = free_port(),
                    at = "127.0.0.1:" + port;
  Running front(generate_words({"--ranks", "3", "--remote", "2", "--listen", at, "--key-file", key}),
                scratch.file("front"));
  const auto refused = [&](const std::vector<std::string>& more, int code, const std::string& words) {
    std::vector<std::string> all{"rank", "--join", at, "--once"};
    all.insert(all.end(), more.begin(), more.end());
    const ProgramResult result = run_program(all);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
    EXPECT_TRUE(front.says(words)) << front.log();
  };
  refused({"--key-file", other}, 4, "holds another key");
  refused({}, 4, "holds another key");
  refused({"--key-file", key, "--rank", "3"}, 4, "rank 3 is beyond this world of 3");
  refused({"--key-file", key, "--rank", "0"}, 4, "rank 0 runs on the front's host");
  // A rank that is there already may become free: the second waits.
  Running first({"rank", "--join", at, "--key-file", key, "--rank", "2"}, scratch.file("first"));
  EXPECT_TRUE(first.says("joined"));
  Running second({"rank", "--join", at, "--key-file", key, "--rank", "2"}, scratch.file("second"));
  EXPECT_TRUE(second.says("rank 2 has joined already")) << second.log();
  EXPECT_TRUE(front.says("rank 2 has joined already")) << front.log();
  EXPECT_EQ(first.end(SIGKILL), 128 + SIGKILL);
  EXPECT_TRUE(front.says("has left before the world was whole")) << front.log();
  EXPECT_TRUE(second.says("joined " + at)) << second.log();
  Running third({"rank", "--join", at, "--key-file", key, "--once"}, scratch.file("third"));
  EXPECT_EQ(front.end(), 0) << front.log();
  EXPECT_EQ(third.end(), 0) << third.log();
}

TEST(Join, beyond_the_loopback_a_key_is_needed) {
  const ProgramResult result =
      run_program(generate_words({"--ranks", "2", "--remote", "1", "--listen", "0.0.0.0:" + free_port()}));
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_NE(result.err.find("--key-file"), std::string::npos) << result.err;
}

TEST(Join, a_rank_with_other_weights_is_named_with_what_differs) {
  const Scratch scratch;
  const ModelCopy copy(kModel);
  // One byte of the first tensor's data.
  const std::string path = copy.path() / "model.safetensors";
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    uint64_t header = 0;
    file.read(reinterpret_cast<char*>(&header), sizeof header);
    file.seekg(static_cast<std::streamoff>(8 + header));
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(8 + header));
    file.put(byte);
  }
  const std::string at = "127.0.0.1:" + free_port();
  Running rank({"rank", "--join", at, "--once", "--model", copy.path()}, scratch.file("rank"));
  const ProgramResult result = run_program(generate_words({"--ranks", "2", "--remote", "1", "--listen", at}));
  EXPECT_EQ(result.exit_code, 3) << result.err;
  for (const std::string words : {"rank 0", "rank 1", "first blocks", "same model files"})
    EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
  EXPECT_EQ(rank.end(), 4);
  EXPECT_NE(rank.log().find("first blocks"), std::string::npos) << rank.log();
}

TEST(Join, a_rank_takes_its_own_rdma_device_before_the_fronts) {
  const Scratch scratch;
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"generate", "--model", kModel, "--prompt", "a"}, std::vector<std::string>{"link"}}) {
    const std::string at = "127.0.0.1:" + free_port();
    Running one({"rank", "--join", at, "--once", "--verbs-device", "mlx5_9"}, scratch.file("one"));
    Running two({"rank", "--join", at, "--once", "--verbs-device", "mlx5_9"}, scratch.file("two"));
    std::vector<std::string> words = command;
    words.insert(words.end(), {"--ranks", "2", "--remote", "2", "--listen", at, "--verbs-device", "mlx5_8"});
    const ProgramResult result = run_program(words);
    EXPECT_EQ(result.exit_code, 4) << result.err;
    EXPECT_NE(result.err.find("--verbs-device mlx5_9: "), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("mlx5_8"), std::string::npos) << result.err;
    EXPECT_EQ(one.end(), 4) << one.log();
    EXPECT_EQ(two.end(), 4) << two.log();
  }
}

TEST(Join, a_rank_that_dies_in_a_step_is_named_and_the_others_join_again) {
  const Scratch scratch;
  const std::string at = "127.0.0.1:" + free_port();
  Running one({"rank", "--join", at, "--rank", "1"}, scratch.file("one"));
  Running two({"rank", "--join", at, "--rank", "2"}, scratch.file("two"));
  Running front(long_words(scratch, {"--ranks", "3", "--remote", "2", "--listen", at, "--link", "tcp"}),
                scratch.file("front"));
  ASSERT_TRUE(one.says("joined") && two.says("joined"));
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  two.end(SIGKILL);
  EXPECT_EQ(front.end(), 4) << front.log();
  EXPECT_NE(front.log().find("rank 2 (127.0.0.1:"), std::string::npos) << front.log();
  EXPECT_TRUE(one.says("the world has ended")) << one.log();
  Running again({"rank", "--join", at, "--rank", "2"}, scratch.file("again"));
  const ProgramResult result = run_program(generate_words({"--ranks", "3", "--remote", "2", "--listen", at}));
  EXPECT_EQ(result.exit_code, 0) << result.err << one.log();
  EXPECT_EQ(result.out, answer_of_one_rank());
}

// Runs a command line through the shell, with output in files.
ProgramResult run_shell(const Scratch& scratch, const std::string& command) {
  const std::string out = scratch.file("out"), err = scratch.file("err");
  const int status = std::system(fmt::format("{} >{} 2>{}", command, out, err).c_str());
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = Scratch::read(out),
          .err = Scratch::read(err)};
}

const std::string kMpirun = "timeout 60 mpirun --allow-run-as-root --oversubscribe";

bool has_mpirun() { return std::system("mpirun --version >/dev/null 2>&1") == 0; }

TEST(Launchers, mpirun_gives_every_process_its_rank) {
  ASSERT_TRUE(has_mpirun()) << "no mpirun: install openmpi-bin";
  const Scratch scratch;
  std::string words;
  for (const std::string& word : generate_words({})) words += fmt::format(" '{}'", word);
  const ProgramResult result =
      run_shell(scratch, fmt::format("{} -n 3 {}{} --stats </dev/null", kMpirun, COPRIME_PROGRAM, words));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, answer_of_one_rank()) << result.err;
  EXPECT_NE(result.err.find("on 3 ranks"), std::string::npos) << result.err;

  // Without PMIx the ranks meet on this host's Unix socket.
  const std::string script = scratch.write("start", "#!/bin/sh\nunset PMIX_NAMESPACE\nexec \"$@\"\n");
  const ProgramResult without_pmix =
      run_shell(scratch, fmt::format("{} -n 2 sh {} {}{} --stats </dev/null", kMpirun, script, COPRIME_PROGRAM, words));
  EXPECT_EQ(without_pmix.exit_code, 0) << without_pmix.err;
  EXPECT_EQ(without_pmix.out, answer_of_one_rank()) << without_pmix.err;

  const ProgramResult by_address =
      run_shell(scratch, fmt::format("{} -n 2 {}{} --listen 127.0.0.1:{} --key-file {} --link tcp </dev/null", kMpirun,
                                     COPRIME_PROGRAM, words, free_port(), scratch.key("key")));
  EXPECT_EQ(by_address.exit_code, 0) << by_address.err;
  EXPECT_EQ(by_address.out, answer_of_one_rank()) << by_address.err;

  // What a process says as it fails goes to a file: mpirun may end a job before it has passed that on.
  const std::string said = scratch.file("said");
  const std::string keep = scratch.write("keep", fmt::format("#!/bin/sh\nexec \"$@\" 2>>{}\n", said));
  const ProgramResult wrong =
      run_shell(scratch, fmt::format("{} -n 2 sh {} {}{} --ranks 3 </dev/null", kMpirun, keep, COPRIME_PROGRAM, words));
  EXPECT_NE(wrong.exit_code, 0);
  EXPECT_NE(Scratch::read(said).find("--ranks 3, and Open MPI started 2 processes"), std::string::npos)
      << Scratch::read(said) << wrong.err;
}

// Each process finds another job named in its environment, so that they cannot meet on a Unix socket.
TEST(Launchers, the_ranks_of_every_command_meet_by_pmix) {
  ASSERT_TRUE(has_mpirun()) << "no mpirun: install openmpi-bin";
  const Scratch scratch;
  const std::string script = scratch.write(
      "start",
      "#!/bin/sh\nexport SLURM_PROCID=$OMPI_COMM_WORLD_RANK SLURM_STEP_NUM_TASKS=$OMPI_COMM_WORLD_SIZE "
      "SLURM_JOB_ID=$OMPI_COMM_WORLD_RANK\nunset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE\nexec \"$@\"\n");
  const auto run = [&](const std::string& words) {
    return run_shell(scratch, fmt::format("{} -n 2 sh {} {} {} --join-timeout 20 </dev/null", kMpirun, script,
                                          COPRIME_PROGRAM, words));
  };
  const ProgramResult generate = run(fmt::format("generate --model {} --prompt a --max-tokens 4", kModel));
  EXPECT_EQ(generate.exit_code, 0) << generate.err;
  const ProgramResult bench = run(fmt::format(
      "bench --model {} --threads 1 --prompt-tokens 8 --decode-tokens 4 --repeat 1 --link tcp --json", kModel));
  EXPECT_EQ(bench.exit_code, 0) << bench.err;
  EXPECT_NE(bench.out.find("\"links\":[[\"none\",\"tcp\"],[\"tcp\",\"none\"]]"), std::string::npos) << bench.out;
  const ProgramResult link = run("link --sizes 4K --repeat 5 --gate-timeout-ms 20000");
  EXPECT_EQ(link.exit_code, 0) << link.err;
  EXPECT_NE(link.out.find("links     shm 0-1"), std::string::npos) << link.out;
}

TEST(Launchers, a_death_ends_the_job_with_exit_code_4_of_the_front) {
  ASSERT_TRUE(has_mpirun()) << "no mpirun: install openmpi-bin";
  const Scratch scratch;
  // The victim ends with status 0, as mpirun sees it: the front's own code is the job's.
  const std::string script = scratch.write(
      "start", fmt::format("#!/bin/sh\nif [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then timeout -s KILL 2 \"$@\"; exit 0; "
                           "fi\nexec \"$@\"\n"));
  const ProgramResult result =
      run_shell(scratch, fmt::format("{} -n 3 sh {} {} {} </dev/null", kMpirun, script, COPRIME_PROGRAM,
                                     fmt::join(long_words(scratch, {}), " ")));
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_NE(result.err.find("rank 1"), std::string::npos) << result.err;
}

// A server of one's own on the loopback, with keys that exist only for the test.
class SshServer {
 public:
  explicit SshServer(const Scratch& scratch) : port_(free_port()) {
    const std::string directory = scratch.file("");
    EXPECT_EQ(
        std::system(fmt::format("cd {0} && ssh-keygen -q -t ed25519 -N '' -f host_key && ssh-keygen -q -t ed25519 "
                                "-N '' -f user_key && cp user_key.pub authorized && chmod 600 authorized && "
                                "printf '[127.0.0.1]:{1} %s\\n' \"$(cat host_key.pub)\" > known",
                                directory, port_)
                        .c_str()),
        0);
    const std::string config = scratch.write(
        "sshd_config", fmt::format("Port {1}\nListenAddress 127.0.0.1\nHostKey {0}host_key\nAuthorizedKeysFile "
                                   "{0}authorized\nStrictModes no\nUsePAM no\nPidFile {0}pid\n",
                                   directory, port_));
    ssh_ =
        scratch.write("ssh", fmt::format("#!/bin/sh\nexec ssh -F none -p {1} -i {0}user_key -o IdentitiesOnly=yes -o "
                                         "UserKnownHostsFile={0}known -o GlobalKnownHostsFile=none \"$@\"\n",
                                         directory, port_));
    std::filesystem::permissions(ssh_, std::filesystem::perms::owner_all);
    pid_ = ::fork();
    if (pid_ == 0) {
      std::filesystem::create_directories("/run/sshd");
      ::execl("/usr/sbin/sshd", "/usr/sbin/sshd", "-D", "-e", "-f", config.c_str(), nullptr);
      ::_exit(127);
    }
  }
  ~SshServer() {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  const std::string& program() const { return ssh_; }

 private:
  std::string port_, ssh_;
  pid_t pid_ = -1;
};

TEST(Launchers, hosts_of_a_file_are_started_by_ssh_with_the_key_on_its_input) {
  ASSERT_TRUE(::geteuid() == 0 && std::filesystem::exists("/usr/sbin/sshd")) << "needs root and openssh-server";
  const Scratch scratch;
  const SshServer server(scratch);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const std::string hosts = scratch.write(
      "hosts", fmt::format("# one machine\n127.0.0.1 ranks=2 model={} program={}\n", kModel, COPRIME_PROGRAM));
  const ProgramResult result =
      run_program(generate_words({"--ranks", "3", "--listen", "127.0.0.1:" + free_port(), "--hosts", hosts, "--ssh",
                                  server.program(), "--join-timeout", "30"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, answer_of_one_rank()) << result.err;

  const std::string wrong = scratch.write("wrong", "127.0.0.1 program=/nowhere/coprime\n");
  const ProgramResult failed = run_program(
      generate_words({"--listen", "127.0.0.1:" + free_port(), "--hosts", wrong, "--ssh", server.program()}));
  EXPECT_EQ(failed.exit_code, 4) << failed.err;
  EXPECT_NE(failed.err.find("ssh to 127.0.0.1 ended with status 127"), std::string::npos) << failed.err;
}

TEST(Hosts, a_file_with_a_wrong_line_is_refused_by_number) {
  const Scratch scratch;
  for (const std::string line : {"a ranks=0", "a ranks=x", "a rank=1", "a program=", "-oProxyCommand=x", "a b"}) {
    const std::string hosts = scratch.write("hosts", "# first\n" + line + "\n");
    const ProgramResult result = run_program(generate_words({"--listen", "127.0.0.1:0", "--hosts", hosts}));
    EXPECT_EQ(result.exit_code, 2) << line << result.err;
    EXPECT_NE(result.err.find(hosts + ":2: "), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace coprime
