// Measures this host once for the planner: the plain read and the products with each format by threads and size, the
// rate of a matrix product, what a layer costs beside its weights and a step beside its ranks, and gates over shared
// memory and the loopback. Under 20 seconds. The host should have nothing else to do.
#pragma once

#include "plan/machine.h"

namespace coprime {

Machine probe_host();

// Its parts. Internal to the probe.
struct ProbeCores {
  int cores = 1;
  std::vector<int> threads;  // 1, 2, 4, ... and the cores
};
void probe_reads(const ProbeCores& cores, MachineHost& host);
void probe_products(const ProbeCores& cores, MachineHost& host);
void probe_attention(const ProbeCores& cores, MachineHost& host);
void probe_states(const ProbeCores& cores, MachineHost& host);
void probe_arithmetic(const ProbeCores& cores, MachineHost& host);
void probe_layers(const ProbeCores& cores, MachineHost& host);
void probe_gates(const ProbeCores& cores, Machine& machine);

}  // namespace coprime
