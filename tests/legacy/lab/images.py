"""Drivers of the programs on pictures."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
from jobs import MAKERS, Job, mnist, picture, write


def _cifar(data: Path) -> None:
    folder = data / "cifar-10-batches-bin"
    folder.mkdir()
    draw = np.random.RandomState(0)
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        records = draw.randint(0, 256, [200, 3073]).astype(np.uint8)
        records[:, 0] %= 10
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    # The program unpacks it, and downloads it where it is missing.
    with tarfile.open(data / "cifar-10-binary.tar.gz", "w:gz") as file:
        file.add(folder, folder.name)


def cifar10(clone: Path, data: Path) -> Job:
    """CIFAR-10's binary files, of random pictures."""
    _cifar(data)
    return Job("cifar10_train.py --data_dir={data} --train_dir={out} --batch_size=16 --max_steps=31".split())


def cifar10_multi_gpu(clone: Path, data: Path) -> Job:
    """The same for two towers."""
    _cifar(data)
    return Job(
        "cifar10_multi_gpu_train.py --data_dir={data} --train_dir={out} --batch_size=16 --max_steps=21 "
        "--num_gpus=2".split()
    )


def slim(clone: Path, data: Path) -> Job:
    """Records of pictures in the format of the flowers, which the program's own functions write."""
    for number in range(24):
        picture(data / "pictures" / f"{number}.jpg", 64, 64, number)
    write(data / "labels.txt", *(f"{number}:class{number}" for number in range(5)))
    records = [MAKERS, "slim_records", "{data}/pictures", "{data}/flowers_train_00000-of-00005.tfrecord"]
    return Job(
        "train_image_classifier.py --train_dir={out} --dataset_dir={data} --dataset_name=flowers "
        "--dataset_split_name=train --model_name=mobilenet_v1 --train_image_size=64 --batch_size=4 "
        "--max_number_of_steps=4 --log_every_n_steps=1 --clone_on_cpu=True --num_readers=1 "
        "--num_preprocessing_threads=1".split(),
        prepare=[records],
    )


def facenet(clone: Path, data: Path) -> Job:
    """A folder of pictures for each of four persons."""
    for person in range(4):
        for number in range(6):
            picture(data / "faces" / f"p{person}" / f"p{person}_{number:04}.png", 160, 160, 10 * person + number)
    return Job(
        "src/train_softmax.py --logs_base_dir {out}/logs --models_base_dir {out}/models --data_dir {data}/faces "
        "--image_size 160 --model_def models.inception_resnet_v1 --optimizer ADAM --learning_rate 0.01 "
        "--max_nrof_epochs 1 --epoch_size 3 --batch_size 4 --nrof_preprocess_threads 1 --embedding_size 64".split()
    )


def dcgan(clone: Path, data: Path) -> Job:
    """MNIST's files, whose sizes the program knows, of random pictures."""
    draw = np.random.RandomState(0)
    for name, count in (("train", 60000), ("t10k", 10000)):
        pictures = np.zeros([count, 784], np.uint8)
        pictures[:200] = draw.randint(0, 256, [200, 784])
        labels = draw.randint(0, 10, count).astype(np.uint8)
        folder = data / "mnist"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(bytes(16) + pictures.tobytes())
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(bytes(8) + labels.tobytes())
    return Job(
        "main.py --dataset=mnist --data_dir={data} --out_dir={out} --out_name=run --input_height=28 --output_height=28 "
        "--batch_size=8 --epoch=1 --train".split()
    )


def pix2pix(clone: Path, data: Path) -> Job:
    """Pairs of pictures side by side."""
    for number in range(4):
        picture(data / "pairs" / f"{number}.png", 256, 512, number)
    return Job(
        "pix2pix.py --mode train --input_dir {data}/pairs --output_dir {out} --max_steps 4 --progress_freq 1 --ngf 8 "
        "--ndf 8 --seed 3 --save_freq 0".split()
    )


def monodepth(clone: Path, data: Path) -> Job:
    """Stereo pairs in KITTI's manner."""
    for side in ("left", "right"):
        for number in range(8):
            picture(data / side / f"{number}.png", 128, 256, number)
    write(data / "files.txt", *(f"left/{number}.png right/{number}.png" for number in range(8)))
    return Job(
        "monodepth_main.py --mode train --model_name m --data_path {data}/ --filenames_file {data}/files.txt "
        "--log_directory {out} --input_height 128 --input_width 256 --batch_size 2 --num_epochs 1 "
        "--num_threads 1".split()
    )


def tf_cnn_benchmarks(clone: Path, data: Path) -> Job:
    """Synthetic pictures, as in the README."""
    return Job(
        "tf_cnn_benchmarks.py --device=cpu --data_format=NHWC --model=trivial --batch_size=8 --num_batches=5 "
        "--num_warmup_batches=1 --display_every=1 --num_gpus=1 --tf_random_seed=3 "
        "--variable_update=parameter_server".split()
    )


def tf_cnn_benchmarks_jpeg(clone: Path, data: Path) -> Job:
    """Records of JPEGs in the format of ImageNet, which its preprocessing decodes and distorts."""
    for number in range(64):
        picture(data / "pictures" / f"{number}.jpg", 256, 256, number)
    records = [MAKERS, "imagenet_records", "{data}/pictures", "{data}/train-00000-of-00001"]
    return Job(
        "tf_cnn_benchmarks.py --device=cpu --data_format=NHWC --model=trivial --batch_size=8 --num_batches=20 "
        "--num_warmup_batches=1 --display_every=1 --num_gpus=1 --tf_random_seed=3 --data_name=imagenet "
        "--data_dir={data} --variable_update=parameter_server".split(),
        prepare=[records],
    )


def gazeml(clone: Path, data: Path) -> Job:
    """Pictures and JSON files as UnityEyes writes them."""
    import json

    folder = data / "overlay" / "datasets" / "UnityEyes" / "imgs"
    draw = np.random.RandomState(1)

    def points(count: int, center: tuple[float, float], radius: float) -> list[str]:
        angles = 2 * np.pi * np.arange(count) / count
        around = [(center[0] + radius * np.cos(angle), center[1] + radius * np.sin(angle)) for angle in angles]
        return [f"({x:.4f}, {y:.4f}, 5.0)" for x, y in around]

    for number in range(40):
        picture(folder / f"{number}.jpg", 600, 800, number)
        center = (400 + draw.uniform(-20, 20), 300 + draw.uniform(-20, 20))
        look = draw.uniform(-0.2, 0.2, 2)
        write(
            folder / f"{number}.json",
            json.dumps(
                dict(
                    interior_margin_2d=points(16, center, 120),
                    caruncle_2d=points(7, (center[0] - 130, center[1]), 12),
                    iris_2d=points(32, center, 50),
                    eye_details=dict(look_vec=f"({look[0]:.4f}, {look[1]:.4f}, -0.9, 0.0)"),
                    head_pose="(0.0, 180.0, 0.0)",
                )
            ),
        )
    return Job(["elg_train.py"])


def tensorpack(clone: Path, data: Path) -> Job:
    """MNIST's files."""
    mnist(data / "mnist_data", 640, 256)
    return Job(["mnist-keras.py"])


def nvidia_resnet(clone: Path, data: Path) -> Job:
    """Synthetic pictures, as in the README."""
    return Job(
        "main.py --arch=resnet50 --mode=training_benchmark --iter_unit=batch --num_iter=5 --warmup_steps=1 "
        "--display_every=1 --batch_size=4 --synthetic_data_size=64 --results_dir={out}".split()
    )


def pointnet(clone: Path, data: Path) -> Job:
    """ModelNet's files, of random points."""
    import h5py

    folder = data / "overlay" / "data" / "modelnet40_ply_hdf5_2048"
    folder.mkdir(parents=True)
    draw = np.random.RandomState(31)
    for name, count in (("train", 64), ("test", 16)):
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file["data"] = draw.rand(count, 2048, 3).astype(np.float32)
            file["label"] = draw.randint(0, 40, [count, 1]).astype(np.uint8)
        write(folder / f"{name}_files.txt", f"data/modelnet40_ply_hdf5_2048/{name}.h5")
    return Job("train.py --num_point=64 --batch_size=16 --max_epoch=3 --optimizer=momentum --log_dir={out}/log".split())


def mnist_vae(clone: Path, data: Path) -> Job:
    """Pictures in MNIST's format."""
    mnist(data / "overlay" / "data", 60000, 10000)
    return Job("run_main.py --dim_z=4 --n_hidden=32 --batch_size=1000 --num_epochs=2 --results_path={out}".split())


def cyclegan(clone: Path, data: Path) -> Job:
    """A picture of each kind, because threads shuffle them; the program's own script makes the records."""
    for name, low in (("X", 0), ("Y", 128)):
        picture(data / name / "0.jpg", 64, 64, 0, low)
    kinds = [f"--{name}_input_dir={{data}}/{name} --{name}_output_file={{data}}/{name}.records" for name in "XY"]
    return Job(
        "train.py --X={data}/X.records --Y={data}/Y.records --image_size=64 --ngf=4".split(),
        prepare=[["build_data.py", *" ".join(kinds).split()]],
    )


DETECTION = """
model {
  ssd {
    num_classes: 2
    box_coder { faster_rcnn_box_coder { y_scale: 10.0 x_scale: 10.0 height_scale: 5.0 width_scale: 5.0 } }
    matcher { argmax_matcher { matched_threshold: 0.5 unmatched_threshold: 0.5 force_match_for_each_row: true } }
    similarity_calculator { iou_similarity {} }
    anchor_generator { ssd_anchor_generator { num_layers: 6 min_scale: 0.2 max_scale: 0.95 aspect_ratios: 1.0 } }
    image_resizer { fixed_shape_resizer { height: 96 width: 96 } }
    box_predictor {
      convolutional_box_predictor {
        min_depth: 0 max_depth: 0 num_layers_before_predictor: 0 kernel_size: 1 box_code_size: 4
        conv_hyperparams {
          activation: RELU_6
          regularizer { l2_regularizer { weight: 0.00004 } }
          initializer { truncated_normal_initializer { stddev: 0.03 } }
        }
      }
    }
    feature_extractor {
      type: "ssd_mobilenet_v1" min_depth: 8 depth_multiplier: 0.25
      conv_hyperparams {
        activation: RELU_6
        regularizer { l2_regularizer { weight: 0.00004 } }
        initializer { truncated_normal_initializer { stddev: 0.03 } }
        batch_norm { train: true scale: true center: true decay: 0.9997 epsilon: 0.001 }
      }
    }
    loss {
      classification_loss { weighted_sigmoid {} }
      localization_loss { weighted_smooth_l1 {} }
      classification_weight: 1.0 localization_weight: 1.0
    }
    normalize_loss_by_num_matches: true
    post_processing {
      batch_non_max_suppression {
        score_threshold: 0.1 iou_threshold: 0.6 max_detections_per_class: 10 max_total_detections: 10
      }
      score_converter: SIGMOID
    }
  }
}
train_config {
  batch_size: 2 num_steps: 3 batch_queue_capacity: 2 num_batch_queue_threads: 1 prefetch_queue_capacity: 1
  optimizer { adam_optimizer { learning_rate { constant_learning_rate { learning_rate: 0.001 } } } }
  data_augmentation_options { random_horizontal_flip {} }
}
train_input_reader {
  shuffle: false num_readers: 1 queue_capacity: 4 min_after_dequeue: 2
  label_map_path: "labels.pbtxt"
  tf_record_input_reader { input_path: "DATA/boxes.records" }
}
eval_config { num_examples: 4 }
eval_input_reader {
  shuffle: false num_readers: 1 queue_capacity: 4 min_after_dequeue: 2
  label_map_path: "labels.pbtxt"
  tf_record_input_reader { input_path: "DATA/boxes.records" }
}
"""


def object_detection(clone: Path, data: Path) -> Job:
    """Pictures with a box each, and a small MobileNet with SSD."""
    for number in range(8):
        picture(data / "pictures" / f"{number}.jpg", 96, 96, number)
    write(data / "overlay" / "labels.pbtxt", *(f"item {{ id: {n} name: 'kind{n}' }}" for n in (1, 2)))
    write(data / "overlay" / "small.config", DETECTION.replace("DATA", str(data)))
    return Job(
        "object_detection/train.py --train_dir={out} --pipeline_config_path=small.config".split(),
        prepare=[
            [MAKERS, "box_records", "{data}/pictures", "{data}/boxes.records"],
            [MAKERS, "messages", "object_detection/protos", "{data}/overlay"],
        ],
    )


def tf_unet(clone: Path, data: Path) -> Job:
    """The program's own circles."""
    lines = [
        "from tf_unet import image_gen, unet",
        "circles = image_gen.GrayScaleDataProvider(nx=200, ny=200, cnt=6, rectangles=False)",
        "net = unet.Unet(channels=circles.channels, n_class=circles.n_class, layers=2, features_root=4)",
        "trainer = unet.Trainer(net, optimizer='momentum', opt_kwargs=dict(momentum=0.2))",
        "trainer.train(circles, 'trained', training_iters=4, epochs=3, dropout=0.75, display_step=2)",
    ]
    write(data / "overlay" / "circles.py", *lines)
    return Job(["circles.py"])


def ugatit(clone: Path, data: Path) -> Job:
    """A picture of each kind: it takes them in the order of the file system."""
    for name, low in (("trainA", 0), ("trainB", 128)):
        picture(data / "overlay" / "dataset" / "kinds" / name / "0.jpg", 64, 64, 0, low)
    return Job(
        "main.py --dataset=kinds --epoch=1 --iteration=3 --ch=4 --n_res=4 --n_dis=3 --img_size=64 --light=True "
        "--augment_flag=False --print_freq=100 --save_freq=100".split()
    )
