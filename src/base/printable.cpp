#include "base/printable.h"

namespace coprime {

std::string printable(std::string_view name) {
  std::string text(name.substr(0, 200));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return name.size() > 200 ? text + "..." : text;
}

}  // namespace coprime
