#include "engine/join_messages.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace coprime {
namespace {

using nlohmann::json;

std::vector<std::byte> bytes_of(const json& object) {
  const std::string text = object.dump();
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

template <class Read>
auto parse(std::span<const std::byte> bytes, Read&& read) {
  try {
    const auto* begin = reinterpret_cast<const char*>(bytes.data());
    return read(json::parse(begin, begin + bytes.size()));
  } catch (const json::exception&) {
    fail(ErrorKind::kLink, "the other end does not speak as a coprime rank does: run the same coprime on all hosts");
  }
}

}  // namespace

std::vector<std::byte> encode(const JoinRequest& request) {
  return bytes_of(
      {{"version", request.version}, {"control", request.control}, {"rank", request.rank}, {"ticket", request.ticket}});
}

std::vector<std::byte> encode(const JoinAnswer& answer) {
  return bytes_of({{"rank", answer.rank}, {"ranks", answer.ranks}});
}

JoinRequest decode_join_request(std::span<const std::byte> bytes) {
  return parse(bytes, [](const json& object) {
    return JoinRequest{.version = object.at("version").get<std::string>(),
                       .control = object.at("control").get<bool>(),
                       .rank = object.at("rank").get<int>(),
                       .ticket = object.at("ticket").get<uint64_t>()};
  });
}

JoinAnswer decode_join_answer(std::span<const std::byte> bytes) {
  return parse(bytes, [](const json& object) {
    return JoinAnswer{.rank = object.at("rank").get<int>(), .ranks = object.at("ranks").get<int>()};
  });
}

}  // namespace coprime
