#include "cli/launched.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace coprime {
namespace {

std::optional<LaunchedProcess> launched(const std::map<std::string, const char*>& variables) {
  return launched_process(
      [&](const char* name) {
        const auto at = variables.find(name);
        return at == variables.end() ? nullptr : at->second;
      },
      71);
}

TEST(Launched, rank_world_and_job_come_from_each_launchers_variables) {
  const auto open_mpi =
      launched({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "3"}, {"PMIX_NAMESPACE", "123"}});
  ASSERT_TRUE(open_mpi);
  EXPECT_EQ(std::tuple(open_mpi->rank, open_mpi->ranks, open_mpi->job), std::tuple(2, 3, "123"));
  const auto slurm =
      launched({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "5"}, {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "1"}});
  ASSERT_TRUE(slurm);
  EXPECT_EQ(std::tuple(slurm->rank, slurm->ranks, slurm->job), std::tuple(0, 5, "7.1"));
  const auto pmi = launched({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  ASSERT_TRUE(pmi);
  EXPECT_EQ(std::tuple(pmi->rank, pmi->ranks, pmi->job), std::tuple(1, 2, "parent 71"));
}

TEST(Launched, a_process_alone_and_a_shell_of_an_allocation_are_not) {
  EXPECT_FALSE(launched({}));
  EXPECT_FALSE(launched({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "5"}, {"SLURM_JOB_ID", "7"}}));
  EXPECT_FALSE(launched({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}));
}

TEST(Launched, variables_that_are_no_numbers_are_refused) {
  for (const char* rank : {"x", "1x", "", "-1", "3", "99999999999"}) {
    EXPECT_THROW(launched({{"PMI_RANK", rank}, {"PMI_SIZE", "3"}}), Error) << rank;
  }
}

}  // namespace
}  // namespace coprime
