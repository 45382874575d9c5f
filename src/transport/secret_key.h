// The 32 bytes that the members of a world share and nobody else knows: read from a key file, or made anew for a world
// that never leaves its host. Wiped when it is destroyed; never printed.
//
// One key serves several purposes by derivation, so that what is said for one can never be used for another.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace coprime {

class SecretKey {
 public:
  static constexpr size_t kBytes = 32;

  explicit SecretKey(std::span<const std::byte, kBytes> bytes);
  SecretKey(const SecretKey&) = default;
  SecretKey& operator=(const SecretKey&) = default;
  ~SecretKey();

  std::span<const std::byte, kBytes> bytes() const { return bytes_; }

  // Compared in a time that does not depend on the bytes.
  bool operator==(const SecretKey& other) const;

  // BLAKE2b keyed with this key, over the purpose's length, the purpose, and the context.
  SecretKey derive(std::string_view purpose, std::span<const std::byte> context = {}) const;

  // The same function, as a proof that its maker holds the key.
  using Proof = std::array<std::byte, 32>;
  Proof prove(std::string_view purpose, std::span<const std::byte> said) const;
  bool verify(std::string_view purpose, std::span<const std::byte> said, std::span<const std::byte> proof) const;

 private:
  std::array<std::byte, kBytes> bytes_;
};

SecretKey make_secret_key();  // from the system's random numbers
void fill_random(std::span<std::byte> bytes);

// A key as text: 64 hexadecimal digits. Error(kUsage) naming `where` for anything else (a line end after it is
// allowed).
std::string to_hex(const SecretKey& key);
SecretKey secret_key_from_hex(std::string_view text, std::string_view where);

// Error(kUsage) when the file cannot be read, is no regular file, may be read or written by others than its owner, or
// holds no key.
SecretKey read_key_file(const std::filesystem::path& path);

// The key that comes on a pipe, until a line end or the pipe's end. `where` names it in errors.
SecretKey read_key(int fd, std::string_view where);

// A new file that only its owner may read. Error(kUsage) when there is one already.
void write_key_file(const std::filesystem::path& path, const SecretKey& key);

}  // namespace coprime
