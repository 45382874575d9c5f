#include "sim/yaml_map.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/printable.h"

namespace coprime::sim {
namespace {

// yaml-cpp's stream of events, made into a tree as long as they are what we read.
class Builder : public YAML::EventHandler {
 public:
  Builder(const std::string& where, int depth) : where_(where), depth_(static_cast<size_t>(depth)) {}

  YamlNode root;

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { refuse(mark, "a value", "nothing"); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse(mark, "a value", "an alias"); }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    refuse(mark, "a map or a value", "a sequence");
  }
  void OnSequenceEnd() override {}

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_extras(mark, tag, anchor);
    if (open_.empty()) refuse(mark, "a map", printable(value));
    if (!has_key_) {
      for (const YamlNode& entry : open_.back()->entries)
        if (entry.key == value)
          refuse(mark, "each key once in its map", fmt::format("{} a second time", printable(value)));
      key_ = value;
      has_key_ = true;
      return;
    }
    add(mark).scalar = value;
  }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    refuse_extras(mark, tag, anchor);
    if (!open_.empty() && !has_key_) refuse(mark, "a name as key", "a map");
    if (open_.size() == depth_) refuse(mark, fmt::format("at most {} levels", depth_), "a map within them");
    YamlNode& node = open_.empty() ? root : add(mark);
    node.line = mark.line + 1;
    node.is_map = true;
    open_.push_back(&node);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  [[noreturn]] void refuse(const YAML::Mark& mark, std::string_view expected, std::string_view found) const {
    fail(ErrorKind::kModel, "{}:{}: {}expected {}; found {}", where_, mark.line + 1,
         has_key_ ? fmt::format("key {}: ", printable(key_)) : "", expected, found);
  }
  void refuse_extras(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) const {
    if (anchor != 0) refuse(mark, "a value without an anchor", "an anchor");
    if (!tag.empty() && tag != "?" && tag != "!")  // none, and what yaml-cpp says of quoted text
      refuse(mark, "a value without a tag", fmt::format("tag {}", printable(tag)));
  }
  // The children of an open map do not move while it is the innermost one.
  YamlNode& add(const YAML::Mark& mark) {
    open_.back()->entries.push_back({.key = key_, .line = mark.line + 1});
    has_key_ = false;
    return open_.back()->entries.back();
  }

  const std::string& where_;
  size_t depth_;
  std::vector<YamlNode*> open_;
  std::string key_;
  bool has_key_ = false;
};

}  // namespace

YamlNode parse_yaml_map(std::string_view text, const std::string& where, size_t most_bytes, int depth) {
  if (text.size() > most_bytes)
    fail(ErrorKind::kModel, "{}:1: expected at most {} bytes; found {}", where, most_bytes, text.size());
  std::istringstream stream{std::string(text)};
  Builder builder(where, depth);
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder) || !builder.root.is_map)
      fail(ErrorKind::kModel, "{}:1: expected a map; found nothing", where);
    if (parser) {
      Builder second(where, depth);
      if (parser.HandleNextDocument(second))
        fail(ErrorKind::kModel, "{}:1: expected one document; found several", where);
    }
  } catch (const YAML::Exception& error) {
    fail(ErrorKind::kModel, "{}:{}: not YAML: {}", where, error.mark.line + 1, printable(error.msg));
  }
  return std::move(builder.root);
}

}  // namespace coprime::sim
