#include "transport/verbs/verbs_device.h"

#include <cerrno>
#include <utility>

#include "base/error.h"

namespace coprime {
namespace {

// The library's list of devices, freed when done: devices that were opened stay open.
class DeviceList {
 public:
  explicit DeviceList(const VerbsLibrary& library) : library_(library) {
    list_ = library.get_device_list(&count_);
    if (list_ == nullptr) {
      fail(ErrorKind::kLink, "get_device_list failed: {}; check that the kernel has RDMA drivers", errno_text(errno));
    }
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ~DeviceList() { library_.free_device_list(list_); }

  std::span<ibv_device* const> devices() const { return {list_, static_cast<size_t>(count_)}; }

  std::string names() const {
    std::string text;
    for (ibv_device* const device : devices()) {
      if (!text.empty()) text += ", ";
      text += library_.get_device_name(device);
    }
    return text;
  }

 private:
  const VerbsLibrary& library_;
  ibv_device** list_ = nullptr;
  int count_ = 0;
};

}  // namespace

const char* port_state_text(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_NOP:
      return "NOP";
    case IBV_PORT_DOWN:
      return "DOWN";
    case IBV_PORT_INIT:
      return "INIT";
    case IBV_PORT_ARMED:
      return "ARMED";
    case IBV_PORT_ACTIVE:
      return "ACTIVE";
    case IBV_PORT_ACTIVE_DEFER:
      return "ACTIVE_DEFER";
  }
  return "unknown";
}

int mtu_bytes(uint32_t mtu) { return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128 << mtu : 0; }

std::shared_ptr<VerbsDevice> VerbsDevice::open(VerbsLibrary library, const std::string& wanted_name) {
  std::shared_ptr<VerbsDevice> device(new VerbsDevice(std::move(library)));
  device->choose(wanted_name);
  device->domain_ = device->library_.alloc_pd(device->context_);
  if (device->domain_ == nullptr) {
    fail(ErrorKind::kLink, "alloc_pd of {} failed: {}; check the device's limits, and that no other program holds it",
         device->name_, errno_text(errno));
  }
  return device;
}

// A named device is taken in any state: whoever names it may bring the port up later.
void VerbsDevice::choose(const std::string& wanted_name) {
  const DeviceList list(library_);
  if (list.devices().empty())
    fail(ErrorKind::kLink, "there is no RDMA device on this host: load its driver, or choose another link (tcp)");
  std::string seen;
  for (ibv_device* const device : list.devices()) {
    name_ = library_.get_device_name(device);
    if (!wanted_name.empty() && name_ != wanted_name) continue;
    context_ = library_.open_device(device);
    has_immediates_ = device->transport_type == IBV_TRANSPORT_IB;
    if (context_ == nullptr) {
      const std::string reason = errno_text(errno);
      if (!wanted_name.empty()) {
        fail(ErrorKind::kLink, "device {} does not open: {}; check the rights to /dev/infiniband", name_, reason);
      }
      seen += fmt::format("{}{}: does not open ({})", seen.empty() ? "" : ", ", name_, reason);
      continue;
    }
    const int error = library_.query_port(context_, kPort, &port_);
    if (!wanted_name.empty() && error != 0) {
      fail(ErrorKind::kLink, "query_port of {} failed: {}; check the device's driver", name_, errno_text(error));
    }
    if (!wanted_name.empty() || (error == 0 && port_.state == IBV_PORT_ACTIVE)) return;
    seen += fmt::format("{}{}: {}", seen.empty() ? "" : ", ", name_,
                        error != 0 ? fmt::format("query_port failed ({})", errno_text(error))
                                   : std::string(port_state_text(port_.state)));
    library_.close_device(std::exchange(context_, nullptr));
  }
  if (!wanted_name.empty()) {
    fail(ErrorKind::kLink, "there is no RDMA device {}: this host has {}", wanted_name, list.names());
  }
  fail(ErrorKind::kLink,
       "no RDMA device has an active port 1 ({}): connect the cable and bring the interface up, or name a device",
       seen);
}

VerbsDevice::~VerbsDevice() {
  if (domain_ != nullptr) library_.dealloc_pd(domain_);
  if (context_ != nullptr) library_.close_device(context_);
}

VerbsMemory::~VerbsMemory() { device->library().dereg_mr(region); }

std::shared_ptr<const VerbsMemory> VerbsDevice::register_memory(std::span<std::byte> memory) {
  std::erase_if(registered_, [](const auto& known) { return known.expired(); });
  for (const auto& known : registered_) {
    std::shared_ptr<const VerbsMemory> held = known.lock();
    if (held && held->bytes.data() == memory.data() && held->bytes.size() == memory.size()) return held;
  }
  // Remote access is never used (no key travels, and the queue pairs allow none): some providers refuse a registration
  // for local writes alone.
  ibv_mr* const region = library_.reg_mr(domain_, memory.data(), memory.size(),
                                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
  if (region == nullptr) return nullptr;
  auto held = std::make_shared<const VerbsMemory>(shared_from_this(), memory, region);
  registered_.push_back(held);
  return held;
}

std::shared_ptr<VerbsDevice> open_verbs_device(const VerbsOptions& options) {
  return VerbsDevice::open(load_verbs_library(options.library), options.device);
}

}  // namespace coprime
