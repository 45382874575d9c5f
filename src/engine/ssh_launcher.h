// Ranks on other hosts, started by ssh from a list of hosts. The world's key goes to each by ssh's standard input,
// never by an argument or the environment. What a rank or ssh says on standard error appears on the front's.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "engine/join.h"

namespace coprime {

// One line of a hosts file.
struct HostLine {
  std::string host;  // as ssh knows it
  int ranks = 1;
  std::string model;                // empty: the front's path
  std::string program = "coprime";  // there
};

// Lines "host [ranks=K] [model=DIR] [program=PATH]"; empty lines and what follows a # do not count. Error(kUsage)
// naming file and line.
std::vector<HostLine> read_hosts_file(const std::filesystem::path& path);
std::vector<HostLine> parse_hosts(const std::string& text, const std::string& where);

// The command that a host's shell gets for one rank.
std::string remote_command(const HostLine& host, const MeetingPoint& meet);

class SshLauncher {
 public:
  // Starts all. Error(kInternal) when a process cannot be started.
  SshLauncher(const std::filesystem::path& ssh, const std::vector<HostLine>& hosts, const MeetingPoint& meet,
              const SecretKey& key);
  ~SshLauncher();  // ends the ssh processes; the ranks end when their front is gone
  SshLauncher(const SshLauncher&) = delete;
  SshLauncher& operator=(const SshLauncher&) = delete;

  // Error(kLink) naming a host whose ssh has ended.
  void check();

 private:
  struct Process {
    pid_t pid = 0;
    std::string host;
    bool reaped = false;
    int status = 0;
  };
  std::vector<Process> processes_;
};

}  // namespace coprime
