#include "transport/secret_key.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/unique_fd.h"

namespace coprime {
namespace {

const std::string kHex = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

class KeyFile : public ::testing::Test {
 protected:
  KeyFile() {
    std::string name = (std::filesystem::temp_directory_path() / "coprime-key-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~KeyFile() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& text, mode_t mode = 0600) const {
    const auto path = folder_ / "key";
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }
  static std::string error_of(const std::filesystem::path& path) {
    try {
      read_key_file(path);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return error.what();
    }
  }
  static void expect_refused(const std::filesystem::path& path, std::string_view why) {
    const std::string error = error_of(path);
    EXPECT_NE(error.find(path.string()), std::string::npos) << error;
    EXPECT_NE(error.find(why), std::string::npos) << error;
    EXPECT_EQ(error.find("0a0b0c0d"), std::string::npos) << "an error tells the key: " << error;
  }
  std::filesystem::path folder_;
};

TEST_F(KeyFile, is_read_with_and_without_a_line_end_and_in_both_cases) {
  std::string upper = kHex;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  for (const std::string& text : {kHex, kHex + "\n", kHex + "\r\n", upper + "\n"}) {
    const SecretKey key = read_key_file(write(text));
    for (size_t i = 0; i < 32; ++i) EXPECT_EQ(key.bytes()[i], static_cast<std::byte>(i));
    EXPECT_EQ(to_hex(key), kHex);
  }
}

TEST_F(KeyFile, that_is_written_is_read_again_and_is_private) {
  const auto path = folder_ / "new";
  const SecretKey key = make_secret_key();
  write_key_file(path, key);
  struct stat status = {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  EXPECT_TRUE(read_key_file(path) == key);
  EXPECT_THROW(write_key_file(path, make_secret_key()), Error);
  EXPECT_TRUE(read_key_file(path) == key);
}

TEST_F(KeyFile, that_others_may_use_is_refused) {
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0644, 0666, 0610}) {
    expect_refused(write(kHex, mode), "chmod 600");
  }
}

TEST_F(KeyFile, that_holds_no_key_is_refused) {
  expect_refused(write(""), "is empty");
  expect_refused(write("\n"), "is empty");
  expect_refused(write(kHex.substr(1)), "only 63 characters");
  expect_refused(write(kHex + "0"), "more than 64 characters");
  expect_refused(write(kHex + "\n" + kHex), "more than 64 characters");
  expect_refused(write(kHex.substr(1) + "g"), "character 64");
  expect_refused(write(std::string(64, '\0')), "character 1:");
  expect_refused(write(std::string(1 << 20, 'a')), "more than 64 characters");
}

TEST_F(KeyFile, that_is_not_there_or_no_file_is_refused) {
  expect_refused(folder_ / "absent", "No such file or directory");
  expect_refused(folder_, "is no regular file");
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_refused(pipe, "is no regular file");  // and nobody waits for its writer
}

TEST(SecretKey, comes_by_a_pipe_in_pieces) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd in(ends[0]);
  UniqueFd out(ends[1]);
  ASSERT_EQ(::write(out.get(), kHex.data(), 10), 10);
  ASSERT_EQ(::write(out.get(), kHex.data() + 10, 54), 54);
  ASSERT_EQ(::write(out.get(), "\n", 1), 1);  // the pipe stays open
  EXPECT_EQ(to_hex(read_key(in.get(), "standard input")), kHex);
}

TEST(SecretKey, keys_differ) {
  EXPECT_FALSE(make_secret_key() == make_secret_key());
  const SecretKey key = make_secret_key(), copy = key;
  EXPECT_TRUE(key == copy);
}

// Python: hashlib.blake2b(len(p).to_bytes(8, "little") + p + c, key=bytes(range(32)), digest_size=32)
TEST(SecretKey, derives_by_keyed_blake2b) {
  const SecretKey key = secret_key_from_hex(kHex, "the test's key");
  const std::string context = "abc";
  EXPECT_EQ(to_hex(key.derive("purpose", std::as_bytes(std::span(context)))),
            "eb88b82354e9261e61aab37bb84fc09e51e59222e03b159836e44c580d097948");
}

TEST(SecretKey, derivations_of_different_purposes_and_contexts_differ) {
  const SecretKey key = secret_key_from_hex(kHex, "the test's key");
  const auto derive = [&](std::string_view purpose, const std::string& context) {
    return key.derive(purpose, std::as_bytes(std::span(context)));
  };
  EXPECT_TRUE(derive("a", "b") == derive("a", "b"));
  EXPECT_FALSE(derive("a", "b") == derive("ab", ""));
  EXPECT_FALSE(derive("a", "b") == derive("b", "b"));
  EXPECT_FALSE(derive("a", "b") == derive("a", "c"));
}

TEST(SecretKey, a_proof_holds_for_its_words_and_its_length_only) {
  const SecretKey key = make_secret_key();
  const std::string said = "said";
  SecretKey::Proof proof = key.prove("purpose", std::as_bytes(std::span(said)));
  EXPECT_TRUE(key.verify("purpose", std::as_bytes(std::span(said)), proof));
  EXPECT_FALSE(key.verify("another", std::as_bytes(std::span(said)), proof));
  EXPECT_FALSE(make_secret_key().verify("purpose", std::as_bytes(std::span(said)), proof));
  EXPECT_FALSE(key.verify("purpose", std::as_bytes(std::span(said)), std::span(proof).first(31)));
  proof[31] ^= std::byte{1};
  EXPECT_FALSE(key.verify("purpose", std::as_bytes(std::span(said)), proof));
}

}  // namespace
}  // namespace coprime
