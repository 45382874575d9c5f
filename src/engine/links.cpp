#include "engine/links.h"

#include "base/error.h"

namespace coprime {

std::string_view link_name(Link link) {
  switch (link) {
    case Link::kAuto:
      return "auto";
    case Link::kShm:
      return "shm";
    case Link::kTcp:
      return "tcp";
    case Link::kVerbs:
      return "verbs";
    case Link::kUcx:
      return "ucx";
  }
  return "?";
}

std::vector<int> memory_group(Link wish, std::span<const RankPlace> places, int rank) {
  if (wish != Link::kAuto && wish != Link::kShm) return {};
  std::vector<int> group;
  for (size_t peer = 0; peer < places.size(); ++peer) {
    if (places[peer].host == places[static_cast<size_t>(rank)].host) group.push_back(static_cast<int>(peer));
  }
  return group.size() > 1 ? group : std::vector<int>{};
}

Link choose_link(Link wish, std::span<const RankPlace> places, int a, int b, bool shared, std::string_view why_not) {
  if (shared) return Link::kShm;
  if (wish == Link::kShm) {
    fail(ErrorKind::kLink, "--link shm: ranks {} and {} share no memory ({}): use --link auto", a, b,
         why_not.empty() ? "they are on different hosts" : why_not);
  }
  if (wish == Link::kTcp) return Link::kTcp;
  for (const int rank : {a, b}) {
    const std::string& no_ucx = places[static_cast<size_t>(rank)].no_ucx;
    if (wish == Link::kUcx && !no_ucx.empty())
      fail(ErrorKind::kLink, "--link ucx: rank {} has no UCX ({}): use --link auto", rank, no_ucx);
  }
  if (wish == Link::kUcx) return Link::kUcx;
  for (const int rank : {a, b}) {
    const std::string& no_verbs = places[static_cast<size_t>(rank)].no_verbs;
    if (no_verbs.empty()) continue;
    if (wish == Link::kAuto) return Link::kTcp;
    fail(ErrorKind::kLink, "--link verbs: rank {} has no RDMA device ({}): use --link auto", rank, no_verbs);
  }
  return Link::kVerbs;
}

}  // namespace coprime
