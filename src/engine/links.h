// Which link joins which ranks: pure choices of the front, made once for a world from where its ranks run.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coprime {

// A wish for the whole world (--link), or what joins one pair (then never kAuto).
enum class Link : uint8_t { kAuto, kShm, kTcp, kVerbs, kUcx };
std::string_view link_name(Link link);

// Which RDMA device a rank uses, where its host has several.
struct VerbsChoice {
  std::string device;  // empty: the first whose port is active
  int gid_index = -1;  // -1: the one of the address by which the ranks meet
  bool made() const { return !device.empty() || gid_index >= 0; }
};

// Where a rank runs.
struct RankPlace {
  std::string host;      // host_identity(): ranks with the same one may share memory
  std::string no_verbs;  // why it has no usable RDMA device; empty: it has one
  std::string no_ucx;    // likewise of UCX, which is looked for where it is wished
};

// The ranks that are to share memory with `rank`, in rising order and it among them; none if it is alone, or if the
// wish rules shared memory out.
std::vector<int> memory_group(Link wish, std::span<const RankPlace> places, int rank);

// What joins ranks a and b; `shared`: they have the same region. Error(kLink) naming both when the wish cannot be
// granted; `why_not` says why they share no memory (empty: they are on different hosts).
Link choose_link(Link wish, std::span<const RankPlace> places, int a, int b, bool shared, std::string_view why_not);

}  // namespace coprime
