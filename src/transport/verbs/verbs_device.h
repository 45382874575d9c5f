// An open RDMA device with its protection domain, shared by the pairs of a rank. Only port 1 is used.
// Memory is registered once and shared by the pairs that post from it: the registration ends with the last of them, so
// that memory which comes back at the same address is registered anew.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/verbs/verbs.h"
#include "transport/verbs/verbs_library.h"

namespace coprime {

class VerbsDevice;

// A registration, ended by the destructor.
struct VerbsMemory {
  VerbsMemory(std::shared_ptr<VerbsDevice> of, std::span<std::byte> memory, ibv_mr* registered)
      : device(std::move(of)), bytes(memory), region(registered) {}
  VerbsMemory(const VerbsMemory&) = delete;
  VerbsMemory& operator=(const VerbsMemory&) = delete;
  ~VerbsMemory();

  const std::shared_ptr<VerbsDevice> device;
  const std::span<std::byte> bytes;
  ibv_mr* const region;
};

class VerbsDevice : public std::enable_shared_from_this<VerbsDevice> {
 public:
  static constexpr uint8_t kPort = 1;

  // Error(kLink): no device, none with an active port or none of the wanted name, or one that does not open.
  static std::shared_ptr<VerbsDevice> open(VerbsLibrary library, const std::string& wanted_name);

  VerbsDevice(const VerbsDevice&) = delete;
  VerbsDevice& operator=(const VerbsDevice&) = delete;
  ~VerbsDevice();

  // Null where the provider refuses; errno says why. The memory outlives what is returned.
  std::shared_ptr<const VerbsMemory> register_memory(std::span<std::byte> memory);

  const VerbsLibrary& library() const { return library_; }
  const std::string& name() const { return name_; }
  const ibv_port_attr& port() const { return port_; }
  // Whether a send may carry 32 bits beside its bytes: InfiniBand and RoCE do, iWARP does not.
  bool has_immediates() const { return has_immediates_; }
  ibv_context* context() const { return context_; }
  ibv_pd* domain() const { return domain_; }

 private:
  explicit VerbsDevice(VerbsLibrary library) : library_(std::move(library)) {}
  void choose(const std::string& wanted_name);

  VerbsLibrary library_;
  std::string name_;
  ibv_port_attr port_ = {};
  bool has_immediates_ = false;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  std::vector<std::weak_ptr<const VerbsMemory>> registered_;
};

const char* port_state_text(ibv_port_state state);

// How many bytes an MTU stands for; 0 for a value that is none.
int mtu_bytes(uint32_t mtu);

}  // namespace coprime
