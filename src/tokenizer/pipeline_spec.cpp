#include "tokenizer/pipeline_spec.h"

#include "base/error.h"

namespace coprime {
namespace {

// Bounds the recursion of the pre-tokenizer.
constexpr size_t kMaxSteps = 64;

void read_normalizer(const JsonNode& node, TokenizerSpec* spec) {
  const std::string_view type = node.need("type").text();
  if (type == "NFC") {
    spec->nfc = true;
  } else if (type == "Sequence") {
    for (const JsonNode& part : node.need("normalizers").items()) read_normalizer(part, spec);
  } else {
    node.need("type").refuse("NFC, or a Sequence of them, or no normalizer");
  }
}

// Returns whether the piece has been turned into bytes: nothing may follow.
bool read_pre_tokenizer(const JsonNode& node, std::vector<PreTokenizerStep>* steps) {
  using Kind = PreTokenizerStep::Kind;
  const std::string_view type = node.need("type").text();
  if (type == "Sequence") {
    bool in_bytes = false;
    for (const JsonNode& part : node.need("pretokenizers").items()) {
      if (in_bytes) part.refuse("nothing after ByteLevel");
      in_bytes = read_pre_tokenizer(part, steps);
    }
    return in_bytes;
  }
  if (steps->size() >= kMaxSteps) node.refuse(fmt::format("at most {} steps", kMaxSteps));
  if (type == "Split") {
    const JsonNode behavior = node.need("behavior");
    if (behavior.text() != "Isolated") behavior.refuse("\"Isolated\"");
    if (node.flag_or("invert", false)) node.need("invert").refuse("false");
    steps->push_back({Kind::kSplit, std::string(node.need("pattern").need("Regex").text())});
  } else if (type == "Digits") {
    steps->push_back({node.flag_or("individual_digits", false) ? Kind::kEachDigit : Kind::kDigits, {}});
  } else if (type == "ByteLevel") {
    if (node.flag_or("add_prefix_space", true)) steps->push_back({Kind::kSpaceInFront, {}});
    if (node.flag_or("use_regex", true)) steps->push_back({Kind::kSplit, std::string(kByteLevelPattern)});
    return true;
  } else {
    node.need("type").refuse("Split, Digits, ByteLevel or Sequence");
  }
  return false;
}

// {"single": [{"SpecialToken": {"id": NAME}}, {"Sequence": {"id": "A"}}, ...], "special_tokens": {NAME: {"ids":
// [...]}}}
void read_template(const JsonNode& node, TokenizerSpec* spec) {
  std::vector<int32_t> before, after;
  int texts = 0;
  for (const JsonNode& piece : node.need("single").items()) {
    if (const auto special = piece.get("SpecialToken")) {
      const std::string_view name = special->need("id").text();
      for (const JsonNode& id : node.need("special_tokens").need(name).need("ids").items()) {
        (texts == 0 ? before : after).push_back(token_id(id));
      }
    } else if (const auto text = piece.get("Sequence")) {
      if (text->need("id").text() != "A") text->need("id").refuse("\"A\"");
      ++texts;
    } else {
      piece.refuse("SpecialToken or Sequence");
    }
  }
  if (texts != 1) node.need("single").refuse("a template that has the Sequence A once");
  spec->prefix.insert(spec->prefix.begin(), before.begin(), before.end());
  spec->suffix.insert(spec->suffix.end(), after.begin(), after.end());
}

void read_post_processor(const JsonNode& node, TokenizerSpec* spec) {
  const std::string_view type = node.need("type").text();
  if (type == "TemplateProcessing") {
    read_template(node, spec);
  } else if (type == "Sequence") {
    for (const JsonNode& part : node.need("processors").items()) read_post_processor(part, spec);
  } else if (type != "ByteLevel") {  // which only moves offsets
    node.need("type").refuse("TemplateProcessing, ByteLevel or Sequence");
  }
}

// Returns how many ByteLevel decoders there are.
int read_decoder(const JsonNode& node) {
  const std::string_view type = node.need("type").text();
  if (type == "ByteLevel") return 1;
  if (type != "Sequence") node.need("type").refuse("ByteLevel");
  int count = 0;
  for (const JsonNode& part : node.need("decoders").items()) count += read_decoder(part);
  return count;
}

}  // namespace

void read_pipeline(const JsonNode& root, TokenizerSpec* spec) {
  if (const auto normalizer = root.get("normalizer")) read_normalizer(*normalizer, spec);
  const JsonNode pre_tokenizer = root.need("pre_tokenizer");
  if (!read_pre_tokenizer(pre_tokenizer, &spec->steps))
    pre_tokenizer.refuse("a ByteLevel pre-tokenizer as the last step");
  if (const auto post_processor = root.get("post_processor")) read_post_processor(*post_processor, spec);
  const JsonNode decoder = root.need("decoder");
  if (read_decoder(decoder) != 1) decoder.refuse("one ByteLevel decoder");
}

}  // namespace coprime
