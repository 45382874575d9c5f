#include "transport/verbs/gid.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/error.h"
#include "base/unique_fd.h"
#include "transport/verbs/testing/fake_verbs.h"
#include "transport/verbs/verbs_device.h"

namespace coprime {
namespace {

constexpr uint32_t kV1 = IBV_GID_TYPE_ROCE_V1;

// A table as mlx5 fills it: link-local first, each address once a RoCE version.
std::vector<std::optional<ibv_gid_entry>> usual_table() {
  const IpAddress link_local = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, 1};
  return {gid_entry(link_local, kV1),   gid_entry(link_local), gid_entry(ipv4(10, 0, 0, 1), kV1),
          gid_entry(ipv4(10, 0, 0, 1)), std::nullopt,          gid_entry(ipv4(10, 9, 9, 9), kV1),
          gid_entry(ipv4(10, 9, 9, 9))};
}

struct Chooser {
  explicit Chooser(std::vector<std::optional<ibv_gid_entry>> table, uint8_t link_layer = IBV_LINK_LAYER_ETHERNET)
      : host(std::make_shared<FakeFabric>()) {
    host.devices[0].gids = std::move(table);
    host.devices[0].link_layer = link_layer;
    device = VerbsDevice::open(host.library(), "");
  }

  int index(int wanted, std::optional<IpAddress> local) {
    return choose_gid(device->library(), device->context(), device->port(), wanted, local).index;
  }

  std::string refusal(int wanted, std::optional<IpAddress> local = std::nullopt) {
    try {
      return fmt::format("entry {}", index(wanted, local));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kLink);
      return error.what();
    }
  }

  FakeHost host;
  std::shared_ptr<VerbsDevice> device;
};

TEST(VerbsGid, is_the_roce_v2_entry_equal_to_the_sockets_address) {
  Chooser chooser(usual_table());
  EXPECT_EQ(chooser.index(-1, ipv4(10, 9, 9, 9)), 6);
  EXPECT_EQ(chooser.index(-1, ipv4(10, 0, 0, 1)), 3);
}

TEST(VerbsGid, may_be_an_ipv6_address_where_the_socket_has_that) {
  auto table = usual_table();
  const IpAddress global = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  table.push_back(gid_entry(global));
  EXPECT_EQ(Chooser(table).index(-1, global), 7);
}

TEST(VerbsGid, is_the_first_ipv4_entry_where_none_is_the_sockets_address) {
  Chooser chooser(usual_table());
  EXPECT_EQ(chooser.index(-1, ipv4(192, 168, 1, 1)), 3);
  EXPECT_EQ(chooser.index(-1, std::nullopt), 3);
}

TEST(VerbsGid, is_entry_0_on_infiniband) {
  const IpAddress native = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(Chooser({gid_entry(native, IBV_GID_TYPE_IB)}, IBV_LINK_LAYER_INFINIBAND).index(-1, std::nullopt), 0);
}

TEST(VerbsGid, that_is_named_is_taken_if_it_can_work) {
  Chooser chooser(usual_table());
  EXPECT_EQ(chooser.index(1, ipv4(10, 0, 0, 1)), 1);
  EXPECT_EQ(chooser.refusal(5),
            "GID index 5 (::ffff:10.9.9.9) is RoCE v1: give the index of its RoCE v2 twin, or none");
  EXPECT_EQ(chooser.refusal(4), "GID index 4 is empty: give another one, or none");
  EXPECT_EQ(chooser.refusal(7), "GID index 7 is beyond the table of 7 entries: give a smaller one, or none");
  Chooser zeros({gid_entry(IpAddress{})});
  EXPECT_EQ(zeros.refusal(0), "GID index 0 is empty: give another one, or none");
}

TEST(VerbsGid, beyond_one_byte_is_refused_even_where_the_table_is_longer) {
  std::vector<std::optional<ibv_gid_entry>> table(300, gid_entry(ipv4(10, 0, 0, 1)));
  EXPECT_EQ(Chooser(table).index(255, std::nullopt), 255);
  EXPECT_EQ(Chooser(table).refusal(256),
            "GID index 256 is beyond the table of 256 entries: give a smaller one, or none");
}

TEST(VerbsGid, without_an_ipv4_address_lists_what_there_is) {
  auto table = usual_table();
  table.resize(3);
  EXPECT_EQ(
      Chooser(table).refusal(-1, ipv4(10, 0, 0, 1)),
      "no GID is an IPv4 address of RoCE v2 (the table has 0: fe80::200:ff:fe00:1 (RoCE v1), 1: "
      "fe80::200:ff:fe00:1, 2: ::ffff:10.0.0.1 (RoCE v1)): give the device's interface an IPv4 address, or name a "
      "GID index");
  EXPECT_NE(Chooser({}).refusal(-1).find("(the table has none)"), std::string::npos);
}

TEST(VerbsGid, a_table_that_cannot_be_read_is_an_error) {
  Chooser chooser(usual_table());
  chooser.host.failing["query_gid"] = EIO;
  const std::string expected =
      "query_gid of entry {} failed: Input/output error; check the device's driver, or name another device";
  EXPECT_EQ(chooser.refusal(-1), fmt::format(fmt::runtime(expected), 0));
  EXPECT_EQ(chooser.refusal(3), fmt::format(fmt::runtime(expected), 3));
}

TEST(VerbsGid, the_sockets_own_address_is_told_for_both_families) {
  const UniqueFd four(::socket(AF_INET, SOCK_STREAM, 0)), six(::socket(AF_INET6, SOCK_STREAM, 0)),
      local(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(four.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(local_ip_address(four.get()), ipv4(127, 0, 0, 1));
  EXPECT_EQ(local_ip_address(local.get()), std::nullopt);
  ASSERT_TRUE(six) << "this system has no IPv6: " << errno_text(errno);
  EXPECT_EQ(local_ip_address(six.get()), IpAddress{});
}

}  // namespace
}  // namespace coprime
