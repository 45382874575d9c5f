#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "json/json.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/gguf_vocabulary.h"
#include "tokenizer/nfc.h"
#include "tokenizer/piece_cache.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/text_table.h"
#include "tokenizer/tokenizer_spec.h"
#include "tokenizer/utf8.h"

namespace coprime {
namespace {

constexpr size_t kMaxTextBytes = INT32_MAX;
constexpr int64_t kMaxFileBytes = 256 << 20;  // of a tokenizer.json
constexpr size_t kCacheFromBytes = 512;       // a shorter text is done before the cache's memory is cleared

struct Token {
  int32_t id = 0;
  bool special = false;
  bool encodable = true;  // as text; a token outside the byte alphabet is not
  std::string bytes;
};

// By id. Where a token is of the vocabulary and added as well, the added one's text counts.
std::vector<Token> tokens_of(const TokenizerSpec& spec) {
  std::vector<Token> tokens;
  tokens.reserve(spec.vocab.size() + spec.added.size());
  for (const AddedToken& token : spec.added) tokens.push_back({token.id, token.special, true, token.content});
  for (const VocabToken& token : spec.vocab) {
    auto bytes = bytes_of_token(token.text);
    tokens.push_back({token.id, false, bytes.has_value(), bytes ? std::move(*bytes) : token.text});
  }
  std::stable_sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) { return a.id < b.id; });
  const auto same_id = [](const Token& a, const Token& b) { return a.id == b.id; };
  tokens.erase(std::unique(tokens.begin(), tokens.end(), same_id), tokens.end());
  return tokens;
}

bool is_white_space_only(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (!is_white_space(next_code_point(text, &at))) return false;
  }
  return true;
}

// Those of `*ranges` that touch [begin, begin + size), relative to it; ranges that end before it are dropped for good.
std::vector<TextRange> ranges_within(std::span<const TextRange>* ranges, size_t begin, size_t size) {
  while (!ranges->empty() && ranges->front().end <= begin) *ranges = ranges->subspan(1);
  std::vector<TextRange> within;
  for (const TextRange& range : *ranges) {
    if (range.begin >= begin + size) break;
    within.push_back({std::max(range.begin, begin) - begin, std::min(range.end, begin + size) - begin});
  }
  return within;
}

}  // namespace

struct Tokenizer::State {
  State(const TokenizerSpec& spec, const std::string& where)
      : tokens(tokens_of(spec)),
        ids(tokens.size()),
        bpe(spec),
        pre_tokenizer(spec.steps, where),
        nfc(spec.nfc),
        prefix(spec.prefix),
        suffix(spec.suffix),
        eos(spec.eos) {
    std::string buffer;
    for (const AddedToken& token : spec.added) {
      if (!token.normalized) {
        in_text.add(token, token.content);
      } else {
        in_normalized.add(token, nfc ? to_nfc(token.content, &buffer) : token.content);
      }
    }
    // Texts that several tokens have: the added one counts, then the one that encoding can give.
    for (const AddedToken& token : spec.added) ids.insert(at(token.id)->bytes, token.id);
    for (const bool encodable : {true, false}) {
      for (const Token& token : tokens) {
        if (token.encodable == encodable) ids.insert(token.bytes, token.id);
      }
    }
  }

  const Token* at(int32_t id) const {
    const auto index = static_cast<size_t>(id);
    if (id >= 0 && index < tokens.size() && tokens[index].id == id) return &tokens[index];  // no gaps below
    const auto less = [](const Token& token, int32_t value) { return token.id < value; };
    const auto found = std::lower_bound(tokens.begin(), tokens.end(), id, less);
    return found != tokens.end() && found->id == id ? &*found : nullptr;
  }

  std::vector<Token> tokens;
  TextTable ids;  // by text
  AddedTokens in_text, in_normalized;
  Bpe bpe;
  PreTokenizer pre_tokenizer;
  bool nfc;
  std::vector<int32_t> prefix, suffix;
  std::vector<int32_t> eos;
};

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::open(const std::filesystem::path& model) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(model, ignored))
    return Tokenizer(std::make_unique<State>(read_gguf_vocabulary(GgufFile::open(model)), model.string()));
  const std::filesystem::path path = model / "tokenizer.json", config = model / "tokenizer_config.json";
  if (!std::filesystem::exists(path, ignored)) {
    fail(ErrorKind::kModel,
         "{}: there is no such file; expected the model's tokenizer beside its weights: check the path, or fetch it",
         path.string());
  }
  Tokenizer tokenizer = parse(read_text_file(path, kMaxFileBytes), path.string());
  if (std::filesystem::exists(config)) {
    const int32_t eos = tokenizer.find(parse_eos_token(read_text_file(config, kMaxFileBytes), config.string()));
    if (eos >= 0) tokenizer.state_->eos.push_back(eos);
  }
  return tokenizer;
}

Tokenizer Tokenizer::parse(std::string_view tokenizer_json, const std::string& where) {
  return Tokenizer(std::make_unique<State>(parse_tokenizer_json(tokenizer_json, where), where));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  return encode(text, add_special_tokens, {}, {});
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, std::span<const TextRange> foreign,
                                       std::string_view structure) const {
  return encode(text, false, foreign, structure);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens,
                                       std::span<const TextRange> foreign, std::string_view structure) const {
  const State& state = *state_;
  if (text.size() > kMaxTextBytes) fail(ErrorKind::kUsage, "a text of {} bytes is too long to tokenize", text.size());
  if (const size_t bad = find_invalid_utf8(text); bad != std::string_view::npos) {
    fail(ErrorKind::kUsage, "the text is not UTF-8: byte {} is 0x{:02x}: convert it first, with iconv for example", bad,
         static_cast<unsigned char>(text[bad]));
  }
  std::vector<int32_t> ids;
  if (add_special_tokens) ids = state.prefix;

  MatchRoom match_room;
  Bpe::Room bpe_room;
  PieceCache cache;
  const bool use_cache = text.size() >= kCacheFromBytes;
  const PreTokenizer::Sink encode_piece = [&](std::string_view piece) {
    if (use_cache && cache.repeat(piece, &ids)) return;
    const size_t begin = ids.size();
    state.bpe.encode(piece, &bpe_room, &ids);
    if (use_cache) cache.remember(piece, begin, ids.size() - begin);
  };
  const AddedTokens::Structural structural = [&](int32_t id) {
    const Token& token = *state.at(id);
    return token.special || (structure.find(token.bytes) != structure.npos && !is_white_space_only(token.bytes));
  };
  const AddedTokens::Sink encode_normalized = [&](int32_t id, std::string_view part) {
    if (id >= 0) return ids.push_back(id);
    state.pre_tokenizer.split(part, &match_room, encode_piece);
  };
  std::string buffer;
  const AddedTokens::Sink encode_part = [&](int32_t id, std::string_view part) {
    if (id >= 0) return ids.push_back(id);
    std::vector<TextRange> within;
    if (!state.in_normalized.empty())
      within = ranges_within(&foreign, static_cast<size_t>(part.data() - text.data()), part.size());
    const std::string_view normalized = state.nfc ? to_nfc(part, &buffer, &within) : part;
    state.in_normalized.split(normalized, within, structural, &match_room, encode_normalized);
  };
  state.in_text.split(text, foreign, structural, &match_room, encode_part);
  if (add_special_tokens) ids.insert(ids.end(), state.suffix.begin(), state.suffix.end());
  return ids;
}

std::string_view Tokenizer::bytes(int32_t id) const {
  const Token* token = state_->at(id);
  return token == nullptr ? std::string_view() : token->bytes;
}

bool Tokenizer::is_special(int32_t id) const {
  const Token* token = state_->at(id);
  return token != nullptr && token->special;
}

int32_t Tokenizer::find(std::string_view token) const { return state_->ids.find(token); }

int32_t Tokenizer::vocab_size() const { return state_->tokens.back().id + 1; }

std::vector<int32_t> Tokenizer::eos_ids() const { return state_->eos; }

}  // namespace coprime
