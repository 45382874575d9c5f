#include "base/lines.h"

#include "base/error.h"

namespace coprime {

void read_lines(std::istream& from, const std::string& name, const std::function<bool(const Line&)>& use) {
  Line line;
  for (int c; (c = from.get()) != std::char_traits<char>::eof();) {
    if (c != '\n') {
      line.text += static_cast<char>(c);
      if (line.text.size() > kMaxLineBytes)
        fail(ErrorKind::kModel, "{}, line {}: more than {} MiB", name, line.number, kMaxLineBytes >> 20);
      continue;
    }
    line.ended = true;
    if (!use(line)) return;
    line = {.text = {}, .number = line.number + 1};
  }
  if (from.bad()) fail(ErrorKind::kModel, "{}, line {}: reading failed", name, line.number);
  if (!line.text.empty()) use(line);
}

}  // namespace coprime
