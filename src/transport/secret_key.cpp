#include "transport/secret_key.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/hex.h"
#include "base/unique_fd.h"

namespace coprime {
namespace {

constexpr size_t kHexDigits = 2 * SecretKey::kBytes;
constexpr std::string_view kForm = "a key is 64 hexadecimal digits";

// Text that is wiped when it goes.
struct KeyText {
  std::array<char, kHexDigits + 2> bytes;  // with room for a line end, and to see that there is more
  size_t size = 0;
  ~KeyText() { sodium_memzero(bytes.data(), bytes.size()); }
  std::string_view view() const { return {bytes.data(), size}; }
};

// Reads until the text is full, or ends, or a line ends. False: errno says why not.
bool read_text(int fd, KeyText& text) {
  while (text.size < text.bytes.size()) {
    const ssize_t got = ::read(fd, text.bytes.data() + text.size, text.bytes.size() - text.size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) break;
    text.size += static_cast<size_t>(got);
    if (text.view().find('\n') != std::string_view::npos) break;
  }
  return true;
}

const unsigned char* raw(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

SecretKey::SecretKey(std::span<const std::byte, kBytes> bytes) { std::ranges::copy(bytes, bytes_.begin()); }

SecretKey::~SecretKey() { sodium_memzero(bytes_.data(), bytes_.size()); }

bool SecretKey::operator==(const SecretKey& other) const {
  return sodium_memcmp(bytes_.data(), other.bytes_.data(), kBytes) == 0;
}

SecretKey::Proof SecretKey::prove(std::string_view purpose, std::span<const std::byte> said) const {
  crypto_generichash_state state;
  Proof proof;
  const uint64_t purpose_bytes = purpose.size();
  COPRIME_CHECK(crypto_generichash_init(&state, raw(bytes_), kBytes, proof.size()) == 0);
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(&purpose_bytes), sizeof purpose_bytes);
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(purpose.data()), purpose.size());
  crypto_generichash_update(&state, raw(said), said.size());
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(proof.data()), proof.size());
  sodium_memzero(&state, sizeof state);
  return proof;
}

bool SecretKey::verify(std::string_view purpose, std::span<const std::byte> said,
                       std::span<const std::byte> proof) const {
  const Proof expected = prove(purpose, said);
  return proof.size() == expected.size() && sodium_memcmp(proof.data(), expected.data(), expected.size()) == 0;
}

SecretKey SecretKey::derive(std::string_view purpose, std::span<const std::byte> context) const {
  Proof bytes = prove(purpose, context);
  const SecretKey key(bytes);
  sodium_memzero(bytes.data(), bytes.size());
  return key;
}

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno != EINTR) fail(ErrorKind::kInternal, "no random numbers: {}", errno_text(errno));
    if (got > 0) bytes = bytes.subspan(static_cast<size_t>(got));
  }
}

SecretKey make_secret_key() {
  std::array<std::byte, SecretKey::kBytes> bytes;
  fill_random(bytes);
  const SecretKey key{bytes};
  sodium_memzero(bytes.data(), bytes.size());
  return key;
}

std::string to_hex(const SecretKey& key) { return to_hex(key.bytes()); }

SecretKey secret_key_from_hex(std::string_view text, std::string_view where) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.size() == kHexDigits + 1 && text.ends_with('\r')) text.remove_suffix(1);
  if (text.empty()) fail(ErrorKind::kUsage, "{} is empty: {}", where, kForm);
  if (text.size() != kHexDigits) {
    fail(ErrorKind::kUsage, "{} has {} {} characters: {}", where, text.size() > kHexDigits ? "more than" : "only",
         text.size() > kHexDigits ? kHexDigits : text.size(), kForm);
  }
  std::array<std::byte, SecretKey::kBytes> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
    if (high < 0 || low < 0) {
      fail(ErrorKind::kUsage, "{} holds something else at character {}: {}", where, 2 * i + (high < 0 ? 1 : 2), kForm);
    }
    bytes[i] = static_cast<std::byte>(high << 4 | low);
  }
  const SecretKey key{bytes};
  sodium_memzero(bytes.data(), bytes.size());
  return key;
}

SecretKey read_key_file(const std::filesystem::path& path) {
  // Not blocking: a pipe would make the open wait for a writer.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) fail(ErrorKind::kUsage, "key file {}: {}", path.string(), errno_text(errno));
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0) fail(ErrorKind::kUsage, "key file {}: {}", path.string(), errno_text(errno));
  if (!S_ISREG(status.st_mode)) fail(ErrorKind::kUsage, "key file {} is no regular file", path.string());
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    fail(ErrorKind::kUsage, "key file {} may be used by others than its owner (mode {:04o}): chmod 600 {}",
         path.string(), status.st_mode & 07777, path.string());
  }
  return read_key(fd.get(), fmt::format("key file {}", path.string()));
}

SecretKey read_key(int fd, std::string_view where) {
  KeyText text;
  if (!read_text(fd, text)) fail(ErrorKind::kUsage, "{}: {}", where, errno_text(errno));
  return secret_key_from_hex(text.view(), where);
}

void write_key_file(const std::filesystem::path& path, const SecretKey& key) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) {
    fail(ErrorKind::kUsage, "key file {} cannot be made: {}{}", path.string(), errno_text(errno),
         errno == EEXIST ? ": choose another name, or remove it if no world uses it" : "");
  }
  std::string text = to_hex(key) + "\n";
  const ssize_t written = ::write(fd.get(), text.data(), text.size());
  const int error = errno;
  sodium_memzero(text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()) || ::fsync(fd.get()) != 0) {
    ::unlink(path.c_str());
    fail(ErrorKind::kUsage, "key file {} cannot be written: {}", path.string(),
         errno_text(written < 0 ? error : ENOSPC));
  }
}

}  // namespace coprime
