#include "tools/partial_results.h"

#include "base/error.h"

namespace coprime {
PartialResults::PartialResults(const std::string& out, const std::string& key) {
  if (out.empty()) return;
  path_ = out + ".partial";
  uint64_t whole = 0;
  if (std::filesystem::exists(path_)) {
    try {
      known_ = read_partial_answers(path_, key, &whole);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: delete it to begin again, or name another --out", error.what()));
    }
    std::error_code failed;
    std::filesystem::resize_file(path_, whole, failed);
    if (failed) fail(ErrorKind::kModel, "{}: cannot be written: {}", path_, failed.message());
  }
  file_.open(path_, std::ios::binary | std::ios::app);
  if (whole == 0) file_ << key << "\n";
  flush();
}

void PartialResults::add(const Answer& answer) {
  if (path_.empty()) return;
  file_ << answer_line(answer);
  flush();
}

size_t PartialResults::finish(size_t questions) {
  const auto later =
      static_cast<size_t>(std::distance(known_.lower_bound(static_cast<int64_t>(questions)), known_.end()));
  if (path_.empty() || later > 0) return later;
  file_.close();
  std::filesystem::remove(path_);
  return 0;
}

void PartialResults::flush() {
  if (!file_.flush()) fail(ErrorKind::kModel, "{}: cannot be written", path_);
}

}  // namespace coprime
