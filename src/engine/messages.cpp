#include "engine/messages.h"

#include "engine/json_fields.h"

namespace coprime {

template <class Field, class T>
void visit(Field&& field, T& value) requires std::same_as<std::remove_const_t<T>, LinkStart> {
  field("rank", value.rank);
  field("ranks", value.ranks);
  field("threads", value.threads);
  field("gate_timeout_ms", value.gate_timeout_ms);
  field("port", value.port);
  field("listen_host", value.listen_host);
  field("world", value.world);
  field("key", value.key);
  field("wire_auth", value.wire_auth);
  field("verbs_device", value.verbs.device);
  field("verbs_gid", value.verbs.gid_index);
  field("ucx", value.ucx);
}

template <class Field, class T>
void visit(Field&& field, T& value) requires std::same_as<std::remove_const_t<T>, RankStart> {
  visit(field, value.links);
  field("model", value.model);
  field("pad_for", value.plan.pad_for);
  field("mlp_width", value.plan.mlp_width);
  field("mlp_unit", value.plan.mlp_unit);
  field("exact", value.plan.exact);
  field("dummies", value.plan.dummies);
  field("math", value.math);
  field("kv_type", value.kv_type);
  field("isa", value.isa);
  field("max_rows", value.max_rows);
  field("pages", value.pages);
  field("slots", value.slots);
  field("sequences", value.sequences);
  field("hash_gates", value.hash_gates);
  field("gate_profile", value.gate_profile);
  field("gate_trace", value.gate_trace);
}

template <class Field, class T>
void visit(Field&& field, T& value) requires std::same_as<std::remove_const_t<T>, Fact> {
  field("name", value.name);
  field("value", value.value);
  field("advice", value.advice);
}

template <class Field, class T>
void visit(Field&& field, T& value) requires std::same_as<std::remove_const_t<T>, RankFacts> {
  field("facts", value.facts);
  field("host", value.host);
  field("port", value.port);
  field("no_verbs", value.no_verbs);
  field("no_ucx", value.no_ucx);
  field("cores", value.cores);
}

template <class Field, class T>
void visit(Field&& field, T& value) requires std::same_as<std::remove_const_t<T>, RankGroup> {
  field("epoch", value.epoch);
  field("ranks", value.ranks);
  field("ranks_on_host", value.ranks_on_host);
  field("index_on_host", value.index_on_host);
}

template <class Field, class T>
void visit(Field&& field, T& value) requires std::same_as<std::remove_const_t<T>, GroupResult> {
  field("shared", value.shared);
  field("failure", value.failure);
}

template <class Field, class T>
void visit(Field&& field, T& value) requires std::same_as<std::remove_const_t<T>, LinkTable::Peer> {
  field("link", value.link);
  field("host", value.host);
  field("port", value.port);
}

template <class Field, class T>
void visit(Field&& field, T& value) requires std::same_as<std::remove_const_t<T>, LinkTable> {
  field("peers", value.peers);
  field("windowed", value.windowed);
}

template <class Field, class T>
void visit(Field&& field, T& value) requires std::same_as<std::remove_const_t<T>, LinkReport> {
  field("names", value.names);
  field("details", value.details);
  field("refusals", value.refusals);
}

template <class Field, class T>
void visit(Field&& field, T& value) requires std::same_as<std::remove_const_t<T>, RankReady> {
  field("order", value.order);
  field("device", value.device);
  field("cores", value.cores);
  field("threads", value.threads);
  field("step_bytes", value.step_bytes);
  field("weight_bytes", value.weight_bytes);
  field("cache_bytes", value.cache_bytes);
  field("resident_bytes", value.resident_bytes);
  field("tally", value.tally);
  field("unused", value.unused);
}

template <class Field, class T>
void visit(Field&& field, T& value) requires std::same_as<std::remove_const_t<T>, RankFailure> {
  field("kind", value.kind);
  field("text", value.text);
}

std::string_view message_text(const Message& message) {
  return {reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size()};
}

template <class T>
std::string to_json(const T& value) {
  return fields_to_json(value);
}

template <class T>
T from_json(std::string_view text) {
  return fields_from_json<T>(text);
}

template std::string to_json(const LinkStart&);
template std::string to_json(const RankStart&);
template std::string to_json(const RankFacts&);
template std::string to_json(const RankGroup&);
template std::string to_json(const GroupResult&);
template std::string to_json(const LinkTable&);
template std::string to_json(const LinkReport&);
template std::string to_json(const RankReady&);
template std::string to_json(const RankFailure&);
template LinkStart from_json(std::string_view);
template RankStart from_json(std::string_view);
template RankFacts from_json(std::string_view);
template RankGroup from_json(std::string_view);
template GroupResult from_json(std::string_view);
template LinkTable from_json(std::string_view);
template LinkReport from_json(std::string_view);
template RankReady from_json(std::string_view);
template RankFailure from_json(std::string_view);

}  // namespace coprime
