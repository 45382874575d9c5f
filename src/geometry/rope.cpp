#include "base/error.h"
#include "base/scalar_math.h"
#include "geometry/config_parts.h"

namespace coprime {
namespace {

// The type that a rope dictionary asks for; "default" if it names none.
std::string rope_type(const JsonObject& rope, Architecture architecture) {
  for (const auto& field : rope.raw()) {
    if (field.value.is_object()) {
      fail(ErrorKind::kModel, "{} is an object; rotary parameters by layer type are not supported; supported: one set",
           rope.path(printable(field.key)));
    }
  }
  const auto named = rope.string("rope_type");
  const std::string type = named ? *named : rope.string("type").value_or("default");
  if (type == "default" || type == "llama3") return type;
  // Three equal position rows: of text, it is the one-dimensional embedding.
  if (type == "mrope" && architecture == Architecture::kQwen35) return "default";
  fail(ErrorKind::kModel, "{} is \"{}\", which is not supported; supported: default, llama3",
       rope.path(named ? "rope_type" : "type"), printable(type));
}

double positive(const JsonObject& keys, std::string_view key, std::optional<double> value, double max) {
  if (!value) fail(ErrorKind::kModel, "{} is missing; expected a number above 0", keys.path(key));
  if (!(*value > 0 && *value <= max)) {
    fail(ErrorKind::kModel, "{} is {}; expected a number above 0 and at most {}", keys.path(key), *value, max);
  }
  return *value;
}

void parse_llama3(const JsonObject& rope, const JsonObject& text, Rope* out) {
  out->llama3 = true;
  out->factor = positive(rope, "factor", rope.number("factor"), 1e6);
  out->low_freq_factor = positive(rope, "low_freq_factor", rope.number("low_freq_factor"), 1e6);
  out->high_freq_factor = positive(rope, "high_freq_factor", rope.number("high_freq_factor"), 1e6);
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  const auto nested = rope.number(kOriginal);
  out->original_max_positions = positive(rope, kOriginal, nested ? nested : text.number(kOriginal), 1e9);
  if (out->high_freq_factor <= out->low_freq_factor) {
    fail(ErrorKind::kModel, "{} is {}; expected more than low_freq_factor, which is {}", rope.path("high_freq_factor"),
         out->high_freq_factor, out->low_freq_factor);
  }
}

}  // namespace

Rope parse_rope(Architecture architecture, const JsonObject& text, int head_dim) {
  Rope rope;
  auto theta = text.number("rope_theta");
  auto partial = text.number("partial_rotary_factor");
  std::optional<JsonObject> scaled;  // the dictionary that counts: the newer one
  std::string type = "default";
  for (std::string_view key : {"rope_scaling", "rope_parameters"}) {
    const auto nested = text.object(key);
    if (!nested) continue;
    type = rope_type(*nested, architecture);
    if (const auto value = nested->number("rope_theta")) theta = value;
    if (const auto value = nested->number("partial_rotary_factor")) partial = value;
    scaled = nested;
  }
  rope.theta = positive(text, "rope_theta", theta.value_or(10000.0), 1e15);
  const double factor = positive(text, "partial_rotary_factor",
                                 partial.value_or(architecture == Architecture::kQwen35 ? 0.25 : 1.0), 1.0);
  rope.rotary_dim = static_cast<int>(head_dim * factor);
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0) {
    fail(ErrorKind::kModel, "{} is {}: {} elements of a head of {} would be rotated; expected an even count",
         text.path("partial_rotary_factor"), factor, rope.rotary_dim, head_dim);
  }
  if (type == "llama3") parse_llama3(*scaled, text, &rope);
  return rope;
}

// All in float, operation by operation as transformers has it (ROPE_INIT_FUNCTIONS, "default" and "llama3"); the power
// is rounded from a double, so it is the nearest float.
std::vector<float> rope_frequencies(const Rope& rope) {
  std::vector<float> frequencies(static_cast<size_t>(rope.rotary_dim / 2));
  const auto low_wavelength = static_cast<float>(rope.original_max_positions / rope.low_freq_factor);
  const auto high_wavelength = static_cast<float>(rope.original_max_positions / rope.high_freq_factor);
  const auto factor = static_cast<float>(rope.factor), low = static_cast<float>(rope.low_freq_factor);
  const auto band = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  const double log_theta = portable_log(static_cast<double>(static_cast<float>(rope.theta)));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope.rotary_dim);
    const float frequency = 1.0f / static_cast<float>(portable_exp(static_cast<double>(exponent) * log_theta));
    frequencies[i] = rope.divisors.empty() ? frequency : frequency / rope.divisors[i];
    if (!rope.llama3) continue;
    const float wavelength = 6.283185307179586f / frequency;
    if (wavelength > low_wavelength) {
      frequencies[i] = frequency / factor;
    } else if (!(wavelength < high_wavelength)) {
      const float smooth = (static_cast<float>(rope.original_max_positions) / wavelength - low) / band;
      frequencies[i] = (1.0f - smooth) * frequency / factor + smooth * frequency;
    }
  }
  return frequencies;
}

}  // namespace coprime
