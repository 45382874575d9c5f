// A host of its own within this machine: a network namespace with a loopback and one network card, a TUN device whose
// packets this process reads and writes. It is gone with the object, and with the process however that ends.
#pragma once

#include <functional>
#include <string>

#include "base/unique_fd.h"

namespace coprime {

class HostNamespace {
 public:
  // `address` as in "10.77.0.1", of a network of 24 bits. std::runtime_error that says how to run when this process
  // may not make namespaces or devices.
  explicit HostNamespace(const std::string& address);

  int fd() const { return space_.get(); }
  int card() const { return card_.get(); }  // packets, one a read() or write(); does not block

  // Runs `act` on a thread of this namespace and waits for it; what it throws is thrown here.
  void run(const std::function<void()>& act) const;
  void set_link(bool up) const;  // the cable at this host's card

 private:
  UniqueFd space_, card_;
};

}  // namespace coprime
