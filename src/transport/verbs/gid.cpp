#include "transport/verbs/gid.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace coprime {
namespace {

constexpr uint32_t kPort = 1;
constexpr int kMaxEntries = 256;  // a queue pair names its entry in one byte
constexpr uint8_t kIpv4Prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool is_ipv4(const ibv_gid& gid) { return std::memcmp(gid.raw, kIpv4Prefix, sizeof kIpv4Prefix) == 0; }

bool is_empty(const ibv_gid& gid) {
  return std::ranges::all_of(gid.raw, [](uint8_t byte) { return byte == 0; });
}

// Nothing: the entry is empty.
std::optional<ibv_gid_entry> read_entry(const VerbsLibrary& library, ibv_context* context, uint32_t index) {
  ibv_gid_entry entry = {};
  const int error = library.query_gid(context, kPort, index, &entry);
  if (error == ENODATA) return std::nullopt;
  if (error != 0) {
    fail(ErrorKind::kLink, "query_gid of entry {} failed: {}; check the device's driver, or name another device", index,
         errno_text(error));
  }
  if (is_empty(entry.gid)) return std::nullopt;
  return entry;
}

std::string table_text(const std::vector<ibv_gid_entry>& entries) {
  std::string text;
  for (const ibv_gid_entry& entry : entries) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{}: {}{}", entry.gid_index, address_text(entry.gid.raw),
                        entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? " (RoCE v1)" : "");
  }
  return text.empty() ? "none" : text;
}

GidChoice wanted_entry(const VerbsLibrary& library, ibv_context* context, int entries, int index) {
  if (index >= entries) {
    fail(ErrorKind::kLink, "GID index {} is beyond the table of {} entries: give a smaller one, or none", index,
         entries);
  }
  const std::optional<ibv_gid_entry> entry = read_entry(library, context, static_cast<uint32_t>(index));
  if (!entry) fail(ErrorKind::kLink, "GID index {} is empty: give another one, or none", index);
  if (entry->gid_type == IBV_GID_TYPE_ROCE_V1) {
    fail(ErrorKind::kLink, "GID index {} ({}) is RoCE v1: give the index of its RoCE v2 twin, or none", index,
         address_text(entry->gid.raw));
  }
  return {static_cast<uint8_t>(index), entry->gid};
}

}  // namespace

std::string address_text(const uint8_t* bytes) {
  char text[INET6_ADDRSTRLEN];
  return ::inet_ntop(AF_INET6, bytes, text, sizeof text);
}

std::optional<IpAddress> local_ip_address(int socket_fd) {
  sockaddr_storage storage = {};
  socklen_t bytes = sizeof storage;
  if (::getsockname(socket_fd, reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) {
    fail(ErrorKind::kLink, "getsockname: {}", errno_text(errno));
  }
  IpAddress address;
  if (storage.ss_family == AF_INET6) {
    std::memcpy(address.data(), &reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr, address.size());
    return address;
  }
  if (storage.ss_family != AF_INET) return std::nullopt;
  std::ranges::copy(kIpv4Prefix, address.begin());
  std::memcpy(address.data() + sizeof kIpv4Prefix, &reinterpret_cast<const sockaddr_in&>(storage).sin_addr, 4);
  return address;
}

GidChoice choose_gid(const VerbsLibrary& library, ibv_context* context, const ibv_port_attr& port, int wanted_index,
                     const std::optional<IpAddress>& local) {
  const int table_entries = std::clamp(port.gid_tbl_len, 0, kMaxEntries);
  if (wanted_index >= 0) return wanted_entry(library, context, table_entries, wanted_index);
  if (port.link_layer == IBV_LINK_LAYER_INFINIBAND) return wanted_entry(library, context, table_entries, 0);
  std::vector<ibv_gid_entry> entries;
  for (int index = 0; index < table_entries; ++index) {
    std::optional<ibv_gid_entry> entry = read_entry(library, context, static_cast<uint32_t>(index));
    if (!entry) continue;
    entry->gid_index = static_cast<uint32_t>(index);
    entries.push_back(*entry);
  }
  const ibv_gid_entry* first_ipv4 = nullptr;
  for (const ibv_gid_entry& entry : entries) {
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V1) continue;
    if (local && std::ranges::equal(entry.gid.raw, *local)) return {static_cast<uint8_t>(entry.gid_index), entry.gid};
    if (first_ipv4 == nullptr && is_ipv4(entry.gid)) first_ipv4 = &entry;
  }
  if (first_ipv4 != nullptr) return {static_cast<uint8_t>(first_ipv4->gid_index), first_ipv4->gid};
  fail(
      ErrorKind::kLink,
      "no GID is an IPv4 address of RoCE v2 (the table has {}): give the device's interface an IPv4 address, or name a "
      "GID index",
      table_text(entries));
}

}  // namespace coprime
