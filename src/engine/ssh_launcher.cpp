#include "engine/ssh_launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/limits.h"

namespace coprime {
namespace {

// A word that no shell takes apart.
std::string quoted(const std::string& word) {
  std::string text = "'";
  for (char c : word) {
    if (c == '\'') {
      text += "'\\''";
    } else {
      text += c;
    }
  }
  return text + "'";
}

// Between fork and exec only calls that are safe there.
[[noreturn]] void become_ssh(const char* program, char* const* arguments, int input, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  if (::dup2(input, 0) >= 0 && ::dup2(2, 1) >= 0) ::execvp(program, arguments);
  ::_exit(127);
}

}  // namespace

std::vector<HostLine> parse_hosts(const std::string& text, const std::string& where) {
  std::vector<HostLine> hosts;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    HostLine host;
    if (!(words >> host.host)) continue;
    if (host.host.front() == '-') fail(ErrorKind::kUsage, "{}:{}: \"{}\" is no host", where, number, host.host);
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      const std::string name = word.substr(0, equals),
                        value = equals == std::string::npos ? "" : word.substr(equals + 1);
      int ranks = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), ranks);
      if (name == "ranks" && error == std::errc() && end == value.data() + value.size() && ranks >= 1 &&
          ranks <= kMaxRanks) {
        host.ranks = ranks;
      } else if (name == "model" && !value.empty()) {
        host.model = value;
      } else if (name == "program" && !value.empty()) {
        host.program = value;
      } else {
        fail(ErrorKind::kUsage, "{}:{}: \"{}\": expected host [ranks=1..{}] [model=DIR] [program=PATH]", where, number,
             word, kMaxRanks);
      }
    }
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) fail(ErrorKind::kUsage, "{}: no hosts: write one a line", where);
  return hosts;
}

std::vector<HostLine> read_hosts_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path))
    fail(ErrorKind::kUsage, "{}: cannot be read: give a file of hosts, one a line", path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return parse_hosts(text.str(), path.string());
}

std::string remote_command(const HostLine& host, const MeetingPoint& meet) {
  std::string command =
      fmt::format("exec {} rank --join {} --key-file - --once", quoted(host.program), quoted(meet.endpoint.text()));
  if (!host.model.empty()) command += " --model " + quoted(host.model);
  return command;
}

SshLauncher::SshLauncher(const std::filesystem::path& ssh, const std::vector<HostLine>& hosts, const MeetingPoint& meet,
                         const SecretKey& key) {
  const std::string program = ssh.string(), key_line = to_hex(key) + "\n";
  for (const HostLine& host : hosts) {
    for (int rank = 0; rank < host.ranks; ++rank) {
      int ends[2];
      if (::pipe2(ends, O_CLOEXEC) != 0) fail(ErrorKind::kInternal, "a pipe cannot be made: {}", errno_text(errno));
      const UniqueFd input(ends[0]), output(ends[1]);
      // The line fits the pipe: nothing blocks, and ssh may read it when it likes.
      if (::write(output.get(), key_line.data(), key_line.size()) != static_cast<ssize_t>(key_line.size()))
        fail(ErrorKind::kInternal, "a pipe takes no key: {}", errno_text(errno));
      // No terminal, no X11, and no question that nobody sees.
      std::vector<std::string> words{program, "-T", "-x", "-o", "BatchMode=yes", host.host, remote_command(host, meet)};
      std::vector<char*> arguments;
      for (std::string& word : words) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      const pid_t parent = ::getpid(), child = ::fork();
      if (child < 0) fail(ErrorKind::kInternal, "cannot start {}: {}", program, errno_text(errno));
      if (child == 0) become_ssh(program.c_str(), arguments.data(), input.get(), parent);
      processes_.push_back({.pid = child, .host = host.host});
    }
  }
}

SshLauncher::~SshLauncher() {
  for (Process& process : processes_) {
    if (!process.reaped) ::kill(process.pid, SIGTERM);
  }
  for (Process& process : processes_) {
    if (!process.reaped) ::waitpid(process.pid, &process.status, 0);
  }
}

void SshLauncher::check() {
  for (Process& process : processes_) {
    if (process.reaped || ::waitpid(process.pid, &process.status, WNOHANG) != process.pid) continue;
    process.reaped = true;
    const int status = WIFEXITED(process.status) ? WEXITSTATUS(process.status) : 128 + WTERMSIG(process.status);
    fail(ErrorKind::kLink, "ssh to {} ended with status {} before its rank had joined: {}", process.host, status,
         status == 127 || status == 126 ? "see that coprime is there, or give program=PATH in the hosts file"
                                        : "see what it says above, and try it by hand");
  }
}

}  // namespace coprime
