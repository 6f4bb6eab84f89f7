// SPDX-License-Identifier: Apache-2.0
#include "mpi_calls.hpp"

#include <tidemark/mpi/detail/mpi_header.hpp>

namespace tidemark::test {

mpi_calls& mpi_calls::instance() {
  static mpi_calls calls;
  return calls;
}

bool mpi_calls::begin(char const* function) noexcept {
  ++count[function];
  return (fails.empty() || fails == function) && this_one_fails();
}

}  // namespace tidemark::test

namespace {

tidemark::test::mpi_calls& calls() { return tidemark::test::mpi_calls::instance(); }

// After a call that succeeded.
int and_then(int code, long& objects, long change) {
  if (code == MPI_SUCCESS) objects += change;
  return code;
}

}  // namespace

extern "C" {

int MPI_Finalized(int* flag) {
  if (!calls().is_finalized) return PMPI_Finalized(flag);
  *flag = 1;
  return MPI_SUCCESS;
}
int MPI_Alloc_mem(MPI_Aint bytes, MPI_Info info, void* result) {
  if (calls().begin("MPI_Alloc_mem")) return MPI_ERR_NO_MEM;
  return and_then(PMPI_Alloc_mem(bytes, info, result), calls().blocks, 1);
}
int MPI_Free_mem(void* block) {
  if (calls().begin("MPI_Free_mem")) return MPI_ERR_BASE;
  return and_then(PMPI_Free_mem(block), calls().blocks, -1);
}
int MPI_Win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win* window) {
  if (calls().begin("MPI_Win_create_dynamic")) return MPI_ERR_INTERN;
  return and_then(PMPI_Win_create_dynamic(info, comm, window), calls().windows, 1);
}
int MPI_Win_allocate_shared(MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void* result,
                            MPI_Win* window) {
  if (calls().begin("MPI_Win_allocate_shared")) return MPI_ERR_NO_MEM;
  return and_then(PMPI_Win_allocate_shared(bytes, unit, info, comm, result, window), calls().windows, 1);
}
int MPI_Win_free(MPI_Win* window) {
  ++calls().count["MPI_Win_free"];
  return and_then(PMPI_Win_free(window), calls().windows, -1);
}
int MPI_Win_attach(MPI_Win window, void* first, MPI_Aint bytes) {
  if (calls().begin("MPI_Win_attach")) return MPI_ERR_RMA_ATTACH;
  return and_then(PMPI_Win_attach(window, first, bytes), calls().attached, 1);
}
int MPI_Win_detach(MPI_Win window, void const* first) {
  if (calls().begin("MPI_Win_detach")) return MPI_ERR_BASE;
  return and_then(PMPI_Win_detach(window, first), calls().attached, -1);
}
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* result) {
  if (calls().begin("MPI_Comm_split_type")) return MPI_ERR_INTERN;
  return PMPI_Comm_split_type(comm, type, key, info, result);
}
int MPI_Allreduce(void const* in, void* out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  if (calls().begin("MPI_Allreduce")) return MPI_ERR_INTERN;
  return PMPI_Allreduce(in, out, n, type, op, comm);
}
int MPI_Bcast(void* data, int n, MPI_Datatype type, int root, MPI_Comm comm) {
  if (calls().begin("MPI_Bcast")) return MPI_ERR_INTERN;
  return PMPI_Bcast(data, n, type, root, comm);
}
int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  const int code = PMPI_Wait(request, status);  // it ends despite the failure, like an error of a reduction
  return calls().begin("MPI_Wait") ? MPI_ERR_INTERN : code;
}
int MPI_Start(MPI_Request* request) {
  if (calls().begin("MPI_Start")) return MPI_ERR_INTERN;
  return PMPI_Start(request);
}
#if MPI_VERSION >= 4
int MPI_Allreduce_init(void const* in, void* out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                       MPI_Info info, MPI_Request* request) {
  if (calls().begin("MPI_Allreduce_init")) return MPI_ERR_INTERN;
  return PMPI_Allreduce_init(in, out, n, type, op, comm, info, request);
}
#else
int MPIX_Allreduce_init(void const* in, void* out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                        MPI_Info info, MPI_Request* request) {
  if (calls().begin("MPI_Allreduce_init")) return MPI_ERR_INTERN;
  return PMPIX_Allreduce_init(in, out, n, type, op, comm, info, request);
}
#endif

}  // extern "C"
