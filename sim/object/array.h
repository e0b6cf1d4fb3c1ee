// Arrays and mipmapped arrays of the simulated GPU. Their elements lie row by row in memory of the
// device that no kernel can name by an address.
//
// Immutable but for the elements. Kept alive by the registry, by queued copies, and by textures and
// surfaces, so that none of them ever touches memory that is gone. Thread safe.
#pragma once

#include <cuda.h>

#include <memory>
#include <span>
#include <vector>

#include "sim/base/registry.h"
#include "sim/image/image.h"
#include "sim/object/sparse_array.h"

namespace fargpu::sim {

class Context;

class Array {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kArray;

  // CUDA_ERROR_INVALID_VALUE: not an array that there can be; CUDA_ERROR_NOT_SUPPORTED: not one
  // that is simulated (block compression, most planar formats).
  static CUresult create(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                         std::shared_ptr<Array>* array);

  const CUDA_ARRAY3D_DESCRIPTOR& descriptor() const { return descriptor_; }
  // Of one level. Not of planar ones.
  const Image& image() const { return image_; }
  // Null: an array with memory of its own.
  const std::shared_ptr<SparseArray>& sparse() const { return sparse_; }
  bool is_planar() const { return !planes_.empty(); }
  const std::vector<std::shared_ptr<Array>>& parts() const { return planes_; }
  // It goes with the mipmapped array or the planar one that it is a part of.
  bool is_part() const { return part_; }
  void set_part() { part_ = true; }

  // Of the planes, which are entered with the whole: the same whenever they are asked for.
  std::vector<uint64_t> part_handles;
  std::weak_ptr<Context> context;

 private:
  friend class MipmappedArray;
  // Of one array, or of all levels.
  static void make_sparse(std::span<const std::shared_ptr<Array>> levels);
  static CUresult make(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                       std::shared_ptr<Array>* array);

  CUDA_ARRAY3D_DESCRIPTOR descriptor_{};
  Image image_;
  std::shared_ptr<SparseArray> sparse_;  // of a part: that of the whole
  std::vector<std::shared_ptr<Array>> planes_;
  bool part_ = false;
};

class MipmappedArray {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kMipmappedArray;

  static CUresult create(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                         unsigned levels, std::shared_ptr<MipmappedArray>* array);

  const CUDA_ARRAY3D_DESCRIPTOR& descriptor() const { return levels_.front()->descriptor(); }
  Image image() const;
  const std::shared_ptr<SparseArray>& sparse() const { return levels_.front()->sparse(); }
  static bool is_part() { return false; }
  const std::vector<std::shared_ptr<Array>>& parts() const { return levels_; }
  std::vector<uint64_t> part_handles;  // of the levels
  std::weak_ptr<Context> context;

 private:
  std::vector<std::shared_ptr<Array>> levels_;
};

// False: not a format that is simulated.
bool to_pixel_format(CUarray_format format, unsigned channels, PixelFormat* pixel);

}  // namespace fargpu::sim
