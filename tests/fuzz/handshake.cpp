// What a stranger, or a holder of the key whose bytes were changed, says to either end of a handshake.
#include "transport/handshake.h"
#include "fuzz.h"

namespace {

using namespace coprime;

// Moves what `from` has to say into `to`, with bytes changed as the input tells.
void move(Handshake* from, Handshake* to, std::span<const uint8_t>* changes) {
  while (!from->unsent().empty() && to->wanted() > 0) {
    const size_t count = std::min(from->unsent().size(), to->wanted());
    std::vector<std::byte> bytes(from->unsent().begin(), from->unsent().begin() + static_cast<ptrdiff_t>(count));
    if (!changes->empty()) {
      const uint8_t change = changes->front();
      *changes = changes->subspan(1);
      if (change < 64) bytes[change % count] ^= std::byte{static_cast<uint8_t>(1 << change % 8)};
    }
    from->sent(count);
    to->receive(bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const SecretKey key = make_secret_key();
  // A stranger's bytes.
  Handshake acceptor = Handshake::accept(key);
  for (size_t at = 0; at < size && acceptor.wanted() > 0;) {
    const size_t count = std::min(acceptor.wanted(), size - at);
    acceptor.receive(bytes_of(data + at, count));
    at += count;
  }
  if (acceptor.state() == Handshake::State::kClaimed || acceptor.state() == Handshake::State::kDone) std::abort();
  // Two that hold the key, over a line that changes bits.
  std::span<const uint8_t> changes(data, size);
  Handshake dialler = Handshake::dial(key, bytes_of(data, std::min<size_t>(size, 16))), other = Handshake::accept(key);
  bool changed = false;
  for (const uint8_t change : changes.first(std::min<size_t>(size, 64))) changed = changed || change < 64;
  for (int turn = 0; turn < 8; ++turn) {
    move(&dialler, &other, &changes);
    if (other.state() == Handshake::State::kClaimed) other.admit({});
    move(&other, &dialler, &changes);
  }
  if (!changed && dialler.state() != Handshake::State::kDone) std::abort();
  if (dialler.state() == Handshake::State::kFailed) check_message(dialler.failure());
  return 0;
}
