// One training step of a layer on four devices: StableHLO as jax.jit(...).lower(...).as_text() prints it.
module @mlp_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 4 : i32} {
  func.func public @main(%x: tensor<64x256xf32>, %w: tensor<256x128xf32>, %y: tensor<64x128xf32>) -> tensor<256x128xf32> {
    %h = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x256xf32>, tensor<256x128xf32>) -> tensor<64x128xf32>
    %r = call @relu(%h) : (tensor<64x128xf32>) -> tensor<64x128xf32>
    %e = stablehlo.subtract %r, %y : tensor<64x128xf32>
    %g = stablehlo.dot_general %x, %e, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x256xf32>, tensor<64x128xf32>) -> tensor<256x128xf32>
    %s = "stablehlo.all_reduce"(%g) <{replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
    }) : (tensor<256x128xf32>) -> tensor<256x128xf32>
    %rate = stablehlo.constant dense<1.000000e-02> : tensor<f32>
    %rates = stablehlo.broadcast_in_dim %rate, dims = [] : (tensor<f32>) -> tensor<256x128xf32>
    %d = stablehlo.multiply %s, %rates : tensor<256x128xf32>
    %new = stablehlo.subtract %w, %d : tensor<256x128xf32>
    return %new : tensor<256x128xf32>
  }
  func.func private @relu(%v: tensor<64x128xf32>) -> tensor<64x128xf32> {
    %zero = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<64x128xf32>
    %m = stablehlo.maximum %v, %zeros : tensor<64x128xf32>
    return %m : tensor<64x128xf32>
  }
}
