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


def pix2pix(clone: Path, data: Path) -> Job:
    """Pairs of pictures side by side."""
    for number in range(4):
        picture(data / "pairs" / f"{number}.png", 256, 512, number)
    return Job(
        "pix2pix.py --mode train --input_dir {data}/pairs --output_dir {out} --max_steps 4 --progress_freq 1 --ngf 8 "
        "--ndf 8 --seed 3 --save_freq 0".split()
    )


def tf_cnn_benchmarks(clone: Path, data: Path) -> Job:
    """Synthetic pictures, as in the README."""
    return Job(
        "tf_cnn_benchmarks.py --device=cpu --data_format=NHWC --model=trivial --batch_size=8 --num_batches=5 "
        "--num_warmup_batches=1 --display_every=1 --num_gpus=1 --tf_random_seed=3 "
        "--variable_update=parameter_server".split()
    )


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
