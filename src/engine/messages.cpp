#include "engine/messages.h"

#include <nlohmann/json.hpp>

namespace coprime {
namespace {

using nlohmann::json;

// One list of fields for both directions: `field` writes to or reads from the object.
template <class Field, class Start>
void visit_start(Field&& field, Start& start) {
  field("model", start.model);
  field("ranks", start.plan.ranks);
  field("pad_for", start.plan.pad_for);
  field("mlp_width", start.plan.mlp_width);
  field("mlp_unit", start.plan.mlp_unit);
  field("exact", start.plan.exact);
  field("dummies", start.plan.dummies);
  field("rank", start.rank);
  field("link", start.link);
  field("kv_type", start.kv_type);
  field("threads", start.threads);
  field("isa", start.isa);
  field("max_rows", start.max_rows);
  field("pages", start.pages);
  field("slots", start.slots);
  field("sequences", start.sequences);
  field("gate_timeout_ms", start.gate_timeout_ms);
  field("port", start.port);
  field("world_key", start.world_key);
  field("hash_gates", start.hash_gates);
  field("gate_profile", start.gate_profile);
  field("gate_trace", start.gate_trace);
}

template <class Field, class Ready>
void visit_ready(Field&& field, Ready& ready) {
  field("agreement", ready.agreement);
  field("order", ready.order);
  field("device", ready.device);
  field("weight_bytes", ready.weight_bytes);
  field("cache_bytes", ready.cache_bytes);
  field("resident_bytes", ready.resident_bytes);
  field("tally", ready.tally);
  field("unused", ready.unused);
}

json parse(std::string_view text) {
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    fail(ErrorKind::kInternal, "a control message is not JSON: {}", error.what());
  }
}

auto writer(json& object) {
  return [&object](const char* name, const auto& value) { object[name] = value; };
}

auto reader(const json& object) {
  return [&object](const char* name, auto& value) {
    try {
      object.at(name).get_to(value);
    } catch (const json::exception& error) {
      fail(ErrorKind::kInternal, "a control message's {}: {}", name, error.what());
    }
  };
}

}  // namespace

std::string_view message_text(const Message& message) {
  return {reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size()};
}

std::string to_json(const RankStart& start) {
  json object;
  visit_start(writer(object), start);
  return object.dump();
}

RankStart rank_start_from_json(std::string_view text) {
  RankStart start;
  const json object = parse(text);
  visit_start(reader(object), start);
  return start;
}

std::string to_json(const RankReady& ready) {
  json object;
  visit_ready(writer(object), ready);
  return object.dump();
}

RankReady rank_ready_from_json(std::string_view text) {
  RankReady ready;
  const json object = parse(text);
  visit_ready(reader(object), ready);
  return ready;
}

// A path in the text need not be UTF-8: what is not is replaced.
std::string to_json(const RankFailure& failure) {
  return json{{"kind", failure.kind}, {"text", failure.text}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

RankFailure rank_failure_from_json(std::string_view text) {
  RankFailure failure;
  const json object = parse(text);
  reader(object)("kind", failure.kind);
  reader(object)("text", failure.text);
  return failure;
}

std::string ports_to_json(const std::vector<int>& ports) { return json(ports).dump(); }

std::vector<int> ports_from_json(std::string_view text) {
  std::vector<int> ports;
  const json object{{"ports", parse(text)}};
  reader(object)("ports", ports);
  return ports;
}

}  // namespace coprime
