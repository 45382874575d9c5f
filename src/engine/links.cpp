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
  }
  return "?";
}

std::vector<int> memory_group(Link wish, std::span<const RankPlace> places, int rank) {
  if (wish == Link::kTcp || wish == Link::kVerbs) return {};
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
  const bool verbs[] = {places[static_cast<size_t>(a)].verbs, places[static_cast<size_t>(b)].verbs};
  if (wish == Link::kVerbs && !(verbs[0] && verbs[1])) {
    fail(ErrorKind::kLink, "--link verbs: rank {} has no usable RDMA device: use --link auto", verbs[0] ? b : a);
  }
  return wish != Link::kTcp && verbs[0] && verbs[1] ? Link::kVerbs : Link::kTcp;
}

}  // namespace coprime
