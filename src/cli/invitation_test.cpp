#include "cli/invitation.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "transport/host_identity.h"

namespace coprime {
namespace {

std::string refusal(auto&& action) {
  try {
    action();
    return "none";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kLink);
    return error.what();
  }
}

TEST(Invitation, says_the_same_after_its_way) {
  const SecretKey key = make_secret_key();
  const Invitation made = make_invitation(key, 7100);
  const Invitation read = invitation_from_text(to_text(made));
  EXPECT_EQ(read.key, to_hex(key));
  EXPECT_EQ(read.port, 7100);
  EXPECT_EQ(read.host, host_identity());
  EXPECT_EQ(read.addresses, made.addresses);
  for (const std::string& address : made.addresses) EXPECT_NE(address.substr(0, 4), "127.");
  for (const char* text : {"", "{}", "[1]", "{\"key\":1}"}) EXPECT_THROW(invitation_from_text(text), Error) << text;
}

TEST(Invitation, is_followed_by_the_loopback_on_one_host_and_else_by_the_first_address_that_answers) {
  const Listener listener = Listener::open({"127.0.0.1", 0}, false, "choose another port");
  Invitation invitation{.port = listener.port(), .host = host_identity(), .addresses = {"203.0.113.1"}};
  EXPECT_EQ(reachable(invitation), (Endpoint{"127.0.0.1", listener.port()}));
  invitation.host = "another host";
  invitation.addresses = {"127.0.0.3", "127.0.0.1"};  // nobody listens at the first
  EXPECT_EQ(reachable(invitation), (Endpoint{"127.0.0.1", listener.port()}));
  invitation.addresses = {"127.0.0.3"};
  EXPECT_EQ(refusal([&] { reachable(invitation); }),
            fmt::format("the front is not reached from here (cannot connect to 127.0.0.3:{}: Connection refused): give "
                        "--listen and --key-file",
                        listener.port()));
}

}  // namespace
}  // namespace coprime
