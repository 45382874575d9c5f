#include "running.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "transport/secret_key.h"

namespace coprime {

std::string free_port() {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  return std::to_string(ntohs(address.sin_port));
}

Scratch::Scratch() {
  std::string pattern = (std::filesystem::temp_directory_path() / "coprime-hosts-XXXXXX").string();
  EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
  path_ = pattern;
}

Scratch::~Scratch() { std::filesystem::remove_all(path_); }

std::string Scratch::key(const std::string& name) const {
  write_key_file(path_ / name, make_secret_key());
  return path_ / name;
}

std::string Scratch::write(const std::string& name, const std::string& text) const {
  std::ofstream(path_ / name) << text;
  return path_ / name;
}

std::string Scratch::read(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

Running::Running(const std::vector<std::string>& words, const std::string& log) : log_(log) {
  std::vector<std::string> all{COPRIME_PROGRAM};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    if (std::freopen(log.c_str(), "w", stderr) == nullptr) ::_exit(126);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
}

Running::~Running() {
  if (pid_ > 0) end(SIGKILL);
}

int Running::end(int signal) {
  if (signal != 0) ::kill(pid_, signal);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool Running::says(const std::string& words, int within_ms) const {
  const int64_t end_us = now_us() + int64_t{within_ms} * 1000;
  do {
    if (log().find(words) != std::string::npos) return true;
    ::usleep(20'000);
  } while (now_us() < end_us);
  return false;
}

}  // namespace coprime
