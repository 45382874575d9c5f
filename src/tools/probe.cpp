#include "tools/probe.h"

#include <fstream>

#include "transport/memory_limit.h"
#include "transport/wait_policy.h"

namespace coprime {
namespace {

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "a processor without a name";
}

ProbeCores cores_of_this_host() {
  ProbeCores cores{.cores = usable_cores()};
  for (int threads = 1; threads < cores.cores; threads *= 2) cores.threads.push_back(threads);
  cores.threads.push_back(cores.cores);
  return cores;
}

}  // namespace

Machine probe_host() {
  const ProbeCores cores = cores_of_this_host();
  MachineHost host{.name = processor_name(), .cores = cores.cores};
  host.memory_bytes = available_memory_bytes();
  Machine machine{.name = "this host", .source = "coprime probe", .measured = true};
  probe_reads(cores, host);
  probe_products(cores, host);
  probe_attention(cores, host);
  probe_states(cores, host);
  probe_arithmetic(cores, host);
  probe_layers(cores, host);
  probe_gates(cores, machine);
  machine.hosts.push_back(std::move(host));
  return machine;
}

}  // namespace coprime
