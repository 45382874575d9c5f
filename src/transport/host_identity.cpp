#include "transport/host_identity.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <fstream>

#include "transport/secret_key.h"

namespace coprime {

std::string host_identity(const std::filesystem::path& proc) {
  std::string boot;
  std::ifstream(proc / "sys/kernel/random/boot_id") >> boot;
  struct stat space = {};
  if (boot.empty() || ::stat((proc / "thread-self/ns/net").c_str(), &space) != 0) {
    std::array<std::byte, 16> unique;
    fill_random(unique);
    std::string text = "unknown/";
    for (const std::byte byte : unique) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
    return text;
  }
  return fmt::format("{}/{}", boot, space.st_ino);
}

}  // namespace coprime
