// What a deadlock looks like: who waits for what, and for whom.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tl/place.h"

namespace coprime::tl {

// A PE whose kernel stands at a command.
struct Waiting {
  enum class What : uint8_t { kMessage, kRoom, kEngines };  // kRoom: for what it sends to `on`
  uint32_t pe = 0;
  int line = 0;
  What what = What::kEngines;
  uint32_t on = 0;  // whose message, or who must take what has been sent
  Op op = Op::kWaitAll;
};

// A line's text: the first few that wait, and the cycle if there is one. name: of a PE.
template <class Name>
std::string describe(const std::vector<Waiting>& all, const Name& name) {
  std::string text;
  std::map<uint32_t, uint32_t> waits_for;
  for (const Waiting& one : all) {
    std::string what = "its own engines (" + std::string(name_of(one.op)) + ")";
    if (one.what == Waiting::What::kMessage) what = "a message from " + name(one.on);
    if (one.what == Waiting::What::kRoom) what = "room in the queue to " + name(one.on);
    if (one.what != Waiting::What::kEngines) waits_for[one.pe] = one.on;
    if (&one - all.data() < 8)
      text += "; " + name(one.pe) + ", line " + std::to_string(one.line) + ", waits for " + what;
  }
  for (const auto& [first, unused] : waits_for) {
    std::vector<uint32_t> path;
    const auto index_of = [&path](uint32_t pe) {
      size_t i = 0;
      while (i < path.size() && path[i] != pe) ++i;
      return i;
    };
    uint32_t at = first;
    while (waits_for.contains(at) && index_of(at) == path.size()) path.push_back(at), at = waits_for[at];
    if (index_of(at) == path.size()) continue;
    text += "; a cycle:";
    for (size_t i = index_of(at); i < path.size(); ++i) text += " " + name(path[i]) + " ->";
    return text + " " + name(at);
  }
  return text;
}

}  // namespace coprime::tl
