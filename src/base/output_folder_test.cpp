#include "base/output_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "base/error.h"
#include "base/interruption.h"

namespace coprime {
namespace {

class OutputFolders : public testing::Test {
 protected:
  OutputFolders() { std::filesystem::create_directories(root_); }
  ~OutputFolders() override { std::filesystem::remove_all(root_); }
  void expect_refusal(const std::filesystem::path& target, const std::string& words) const {
    try {
      const OutputFolder folder(target);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
  bool there(const std::string& name) const { return std::filesystem::exists(root_ / name); }

  const std::filesystem::path root_ =
      std::filesystem::path(testing::TempDir()) / ("output-folder-" + std::to_string(::getpid()));
};

TEST_F(OutputFolders, appear_whole_with_those_above_them) {
  {
    OutputFolder folder(root_ / "above" / "out/");  // as a shell completes it
    std::ofstream(folder / "file") << "text";
    EXPECT_FALSE(there("above/out"));
    folder.finish();
  }
  EXPECT_TRUE(there("above/out/file"));
  EXPECT_FALSE(there("above/out.partial"));
}

TEST_F(OutputFolders, that_are_not_finished_leave_nothing) {
  { std::ofstream(OutputFolder(root_ / "out") / "file") << "text"; }
  EXPECT_TRUE(std::filesystem::is_empty(root_));
}

TEST_F(OutputFolders, may_be_there_empty_and_not_full) {
  std::filesystem::create_directory(root_ / "out");
  OutputFolder(root_ / "out").finish();
  std::ofstream(root_ / "out" / "file") << "kept";
  expect_refusal(root_ / "out", "out is there and holds something");
  EXPECT_TRUE(there("out/file"));
}

TEST_F(OutputFolders, of_a_run_that_was_killed_are_told_and_kept) {
  std::filesystem::create_directory(root_ / "out.partial");
  std::ofstream(root_ / "out.partial" / "file") << "kept";
  expect_refusal(root_ / "out", "out.partial is there: another run writes it, or one was killed");
  EXPECT_TRUE(there("out.partial/file"));
}

void write_until_interrupted(const std::filesystem::path& target, int signal) {
  const Interruption interruption;
  try {
    const OutputFolder folder(target);
    interruption.check();
    std::raise(signal);
    interruption.check();
  } catch (const Error&) {
    return;
  }
  ::_exit(9);
}

TEST_F(OutputFolders, leave_nothing_when_their_process_is_interrupted) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EXIT(write_until_interrupted(root_ / "out", signal), testing::KilledBySignal(signal), "");
    EXPECT_TRUE(std::filesystem::is_empty(root_));
  }
}

TEST_F(OutputFolders, are_written_on_where_the_signal_is_ignored) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);  // nohup
        write_until_interrupted(root_ / "out", SIGHUP);
      },
      testing::ExitedWithCode(9), "");
}

}  // namespace
}  // namespace coprime
