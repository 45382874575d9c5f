#include "transport/verbs/verbs_device.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "base/error.h"
#include "transport/verbs/testing/fake_verbs.h"

namespace coprime {
namespace {

FakeDevice device_in(const std::string& name, ibv_port_state state) {
  FakeDevice device;
  device.name = name;
  device.state = state;
  return device;
}

struct Devices {
  explicit Devices(std::vector<FakeDevice> devices) : host(std::make_shared<FakeFabric>(), std::move(devices)) {}

  std::string chosen(const std::string& wanted = "") { return VerbsDevice::open(host.library(), wanted)->name(); }

  // And that nothing was left open.
  std::string refusal(const std::string& wanted = "") {
    std::string text;
    try {
      text = "opened " + chosen(wanted);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kLink);
      text = error.what();
    }
    EXPECT_EQ(host.objects, 0);
    return text;
  }

  FakeHost host;
};

TEST(VerbsDevice, is_the_first_with_an_active_port) {
  Devices devices({device_in("a", IBV_PORT_DOWN), device_in("b", IBV_PORT_ACTIVE), device_in("c", IBV_PORT_ACTIVE)});
  EXPECT_EQ(devices.chosen(), "b");
  EXPECT_EQ(devices.host.objects, 0);
}

TEST(VerbsDevice, that_is_named_is_taken_in_any_state) {
  Devices devices({device_in("a", IBV_PORT_DOWN), device_in("b", IBV_PORT_ACTIVE)});
  EXPECT_EQ(devices.chosen("a"), "a");
  EXPECT_EQ(devices.refusal("mlx5_0"), "there is no RDMA device mlx5_0: this host has a, b");
}

TEST(VerbsDevice, without_an_active_port_lists_the_states) {
  Devices devices({device_in("a", IBV_PORT_DOWN), device_in("b", IBV_PORT_INIT), device_in("c", IBV_PORT_ARMED)});
  EXPECT_EQ(
      devices.refusal(),
      "no RDMA device has an active port 1 (a: DOWN, b: INIT, c: ARMED): connect the cable and bring the interface "
      "up, or name a device");
}

TEST(VerbsDevice, each_refusal_of_the_library_has_its_own_message) {
  Devices none({});
  EXPECT_EQ(none.refusal(), "there is no RDMA device on this host: load its driver, or choose another link (tcp)");

  struct Case {
    const char* call;
    const char* wanted;
    int error;
    const char* message;
  };
  for (const Case& expected :
       {Case{"get_device_list", "", ENOSYS,
             "get_device_list failed: Function not implemented; check that the kernel has RDMA drivers"},
        Case{"open_device", "a", EACCES,
             "device a does not open: Permission denied; check the rights to /dev/infiniband"},
        Case{"open_device", "", EACCES,
             "no RDMA device has an active port 1 (a: does not open (Permission denied)): connect the cable and bring "
             "the interface up, or name a device"},
        Case{"query_port", "a", EIO, "query_port of a failed: Input/output error; check the device's driver"},
        Case{"query_port", "", EIO,
             "no RDMA device has an active port 1 (a: query_port failed (Input/output error)): connect the cable and "
             "bring the interface up, or name a device"},
        Case{"alloc_pd", "", ENOMEM,
             "alloc_pd of a failed: Cannot allocate memory; check the device's limits, and that no other program holds "
             "it"}}) {
    Devices devices({device_in("a", IBV_PORT_ACTIVE)});
    devices.host.failing[expected.call] = expected.error;
    EXPECT_EQ(devices.refusal(expected.wanted), expected.message);
  }
}

TEST(VerbsDevice, memory_is_registered_once_and_until_its_last_user_is_gone) {
  Devices devices({device_in("a", IBV_PORT_ACTIVE)});
  std::vector<std::byte> memory(100);
  {
    const auto device = VerbsDevice::open(devices.host.library(), "");
    auto first = device->register_memory(memory), second = device->register_memory(memory);
    EXPECT_EQ(first, second);
    EXPECT_EQ(devices.host.registrations, 1);
    first.reset();
    second.reset();
    EXPECT_TRUE(device->register_memory(memory));  // memory that came back: the old registration is not believed
    EXPECT_EQ(devices.host.registrations, 2);
    devices.host.failing["reg_mr"] = ENOMEM;
    EXPECT_FALSE(device->register_memory(std::span(memory).first(10)));
  }
  EXPECT_EQ(devices.host.objects, 0);
}

std::string refusal(const VerbsOptions& options) {
  try {
    open_verbs_device(options);
    return "none";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kLink);
    return error.what();
  }
}

TEST(VerbsLibrary, that_is_missing_or_another_is_told) {
  EXPECT_EQ(
      refusal({.library = "/nonexistent/libibverbs.so.1"}),
      "the verbs library does not load (/nonexistent/libibverbs.so.1: cannot open shared object file: No such file "
      "or directory): install libibverbs1 and its drivers");
  EXPECT_EQ(
      refusal({.library = "libm.so.6"}),
      "libm.so.6 has no ibv_get_device_list: it is no libibverbs, or older than rdma-core 33; install a newer one");
}

// The package that brings the header brings the library as well.
TEST(VerbsLibrary, of_this_host_has_every_call) {
  const VerbsLibrary library = load_verbs_library(VerbsOptions().library);
  EXPECT_STREQ(library.status_text(IBV_WC_SUCCESS), "success");
}

}  // namespace
}  // namespace coprime
