// SPDX-License-Identifier: MIT
// An allocator setting for programs that work with large tensors.
#pragma once

namespace mini::app {

/// Makes glibc's allocator keep freed memory in the process.
///
/// By default glibc returns the memory of a freed large tensor to the system, and the next large
/// tensor causes a page fault for each of its pages. Call this before allocating tensors.
/// `bench_training --default-malloc` measures training without it.
void keep_freed_memory();

}  // namespace mini::app
