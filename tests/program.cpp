#include "program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace coprime {
namespace {

std::pair<UniqueFd, UniqueFd> make_pipe() {
  int fds[2];
  EXPECT_EQ(::pipe2(fds, O_CLOEXEC), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// /proc/pid/stat: the state's letter and the parent; false when there is no such process.
bool read_stat(pid_t pid, char& state, pid_t& parent) {
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(stat, line)) return false;
  std::istringstream rest(line.substr(line.rfind(')') + 1));
  return static_cast<bool>(rest >> state >> parent);
}

}  // namespace

ProgramResult run_program(const std::vector<std::string>& arguments, void (*setup)()) {
  auto [out_read, out_write] = make_pipe();
  auto [err_read, err_write] = make_pipe();
  std::vector<std::string> words{COPRIME_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const int64_t begin_us = now_us();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(out_write.get(), 1);
    ::dup2(err_write.get(), 2);
    if (setup != nullptr) setup();
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  out_write.reset();
  err_write.reset();
  ProgramResult result;
  struct Stream {
    int fd;
    std::string* text;
  };
  std::vector<Stream> streams{{out_read.get(), &result.out}, {err_read.get(), &result.err}};
  while (!streams.empty()) {
    std::vector<pollfd> fds;
    for (const Stream& stream : streams) fds.push_back({stream.fd, POLLIN, 0});
    ::poll(fds.data(), fds.size(), -1);
    for (size_t i = fds.size(); i-- > 0;) {
      if (fds[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t got = ::read(fds[i].fd, buffer, sizeof buffer);
      if (got > 0) {
        streams[i].text->append(buffer, static_cast<size_t>(got));
      } else {
        streams.erase(streams.begin() + static_cast<ptrdiff_t>(i));
      }
    }
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  result.seconds = static_cast<double>(now_us() - begin_us) * 1e-6;
  result.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    char state;
    pid_t its_parent;
    const pid_t pid = std::stoi(name);
    if (read_stat(pid, state, its_parent) && its_parent == parent && state != 'Z') children.push_back(pid);
  }
  return children;
}

bool is_alive(pid_t pid) {
  char state;
  pid_t parent;
  return read_stat(pid, state, parent) && state != 'Z' && state != 'X';
}

int64_t cpu_ticks(pid_t pid) {
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(stat, line)) return 0;
  std::istringstream rest(line.substr(line.rfind(')') + 2));
  std::string field;
  int64_t user = 0, system = 0;
  for (int i = 0; i < 11; ++i) rest >> field;
  rest >> user >> system;
  return user + system;
}

ModelCopy::ModelCopy(const std::filesystem::path& from) {
  std::string pattern = (std::filesystem::temp_directory_path() / "coprime-test-XXXXXX").string();
  EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
  path_ = pattern;
  std::filesystem::copy(from, path_, std::filesystem::copy_options::recursive);
}

ModelCopy::~ModelCopy() { std::filesystem::remove_all(path_); }

std::string ModelCopy::read(const std::string& file) const {
  std::ifstream in(path_ / file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void ModelCopy::write(const std::string& file, const std::string& text) const {
  std::ofstream out(path_ / file, std::ios::binary | std::ios::trunc);
  out << text;
}

void ModelCopy::edit(const std::string& file, const std::string& from, const std::string& to) const {
  std::string text = read(file);
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  write(file, text.replace(at, from.size(), to));
}

}  // namespace coprime
