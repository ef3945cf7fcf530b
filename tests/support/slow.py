"""Which tests are `slow`: the default run leaves them out, because it tests the same promises with fewer cases.

`pytest -m ""` and `make test-all` run them, too. A new row needs a test of the same kind that stays in the default run.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import Any

import pytest

# Tests with several parameters: the default run takes each value of each parameter at least once, not with each other.
THINNED = {
    "test_checkpoints.py": [
        "test_a_damaged_checkpoint",
        "test_the_checkpoint_of_another_program",
        "test_a_recovery_from_a_damaged_checkpoint",
        "test_a_position_that_no_run_has_saved",
    ],
    "test_classic_loop.py": ["test_every_record_is_seen"],
    "test_cli_streams.py": ["test_nobody_reads_the_output", "test_the_disk_is_full"],
    "test_composites_staged.py": ["test_components_arrive_as_their_tensors"],
    "test_faults.py": [
        "test_what_a_source_raises_is_raised_from_run",
        "test_a_batch_that_does_not_fit_is_named",
        "test_many_failing_steps_lose_no_slot_and_repeat_no_batch",
        "test_ignored_exceptions_skip_and_count",
        "test_a_staged_batch_never_changes",
    ],
    "test_faults_everywhere.py": [
        "test_what_a_source_raises_leaves_the_session",
        "test_a_batch_that_does_not_fit_is_named",
        "test_failing_steps_cost_at_most_their_own_batches",
        "test_a_run_that_is_stopped_leaves_nothing",
        "test_ctrl_c_reaches_a_step_that_waits",
    ],
    "test_recovery.py": [
        "test_a_recovery_loses_and_repeats_nothing",
        "test_a_python_worker_of_a_parallel_map",
        "test_batches_that_do_not_fit_cost_a_tower_no_turn",
    ],
    "test_resume_skipped.py": ["test_a_stream_goes_on_from_the_state_behind_its_position"],
    "test_save_on_stop.py": ["test_the_next_run_goes_on_with_the_next_record", "test_what_is_not_saved"],
    "test_session.py": ["test_stopping_early_leaves_no_thread"],
    "test_source_errors.py": [
        "test_a_signal_from_a_source_is_an_error",
        "test_a_signal_that_is_to_be_skipped_is_skipped",
        "test_one_signal_more_than_may_be_skipped_is_an_error",
        "test_every_door_into_a_source",
    ],
    "test_bench_train.py": ["test_a_step_is_fed_by_as_many_threads_or_processes_as_asked_for"],
    "test_staged.py": ["test_the_structure_and_the_shapes_are_kept"],
    "test_stopping.py": [
        "test_feeders_that_wait_for_room",
        "test_a_source_that_never_returns_is_named_and_left_behind",
    ],
}

# Patterns of test names, with their parameters.
LEFT_OUT = {
    # The same damage at another place of the file.
    "test_checkpoints.py": [
        r"\[(a bit of the (middle|last)|text for|half of the|the data end early|the last byte of the index)",
        r"names_the_latest_checkpoint\[(cut|zeros|other fields)\]",
        r"no_checkpoint_at_all_is_no_error\[hook\]",
    ],
    # Integers, floats and complex numbers of another width.
    "test_bytes_equal.py": [r"feed_dict_delivers\[(u?int(16|32)|int8|uint4|float(16|32|8_.*)|complex64)\]"],
    # `queued` has threads and `lockstep` an area; `chained` is a `queued` and a `staged` pipeline.
    "test_startup.py": [
        r"takes_time_in_proportion\[(staged|chained)\]",
        r"\[(staged-by_session|(staged|chained|dataset|towers)-by_hand|queued-by_session)\]",
    ],
    # Each run has servers that start and end.
    "test_forked.py": ["test_a_server_ends_with_its_last_connection"],
    # The same without threads of their own.
    "test_fork.py": [r"with_sessions\[(session|start)\]"],
    # The first trains a cluster, whose steps, kills and figures the tests of clusters have. The others are systems on
    # arrays, as on W1, and on data for worker processes, as on W6. W5 and W6 have the systems that shuffle, those that
    # read files or texts in their own way, and those of a user's hand.
    "test_bench.py": [
        r"experiments_run\[cluster\]",
        r"system_delivers\[W[2347]-(?!(staged|staged_uint8|staged_processes|tf_data)\])",
        r"system_delivers\[W[^6]-staged_processes\]",
        r"system_delivers\[W[56]-(staged_nice|staged_uint8_nice|lockstep|classic_fifo|from_generator|py_function)\]",
        r"system_delivers\[W3-staged_uint8\]",
    ],
    # A program as `staging-tf1 run train.py` in test_legacy_docs.py, which has the numbers of `feed_thread`, and the
    # new interpreters of test_legacy_imports.py. More cells, layers, optimizers, metrics and datasets of tf.contrib:
    # some of each stay.
    "test_legacy_programs.py": [
        "a_program_by_itself",
        r"parts_of_contrib_train_as_under_1_15\[(?!(crf_log_likelihood|crf_decode|bahdanau_attention|columns_weighted_sum|"
        r"luong_attention_scaled|seq2seq_beam_search_with_attention|legacy_embedding_attention|nas_cell|lookup_tables|"
        r"lstm_block_fused|gru_block_cell_v2|layers_conv2d|layers_batch_norm_unfused|layers_layer_norm|opt_lazy_adam|"
        r"slim_lenet_like|losses_triplet_semihard|metrics_auc|training_hparams|training_bucket_by_sequence_length|"
        r"framework_assign_from_checkpoint|data_group_by_window|image_rotate_gradient|learn_vocabulary)\])",
    ],
    # Two numbers of batches, and hooks that fail with threads.
    "test_examples.py": [r"lockstep_by_hand_and_staged_take_the_same\[2\]"],
    "test_freed.py": [r"\[lockstep-a hook fails in (before_run|after_run|end)\]"],
    # One thread, where the default run has two; sources that leave the GIL to others are read by one.
    "test_advice.py": [r"told_to_use_processes\[in_python-1\]"],
    # Deaths by another signal, and other limits between the tightest and the widest.
    "test_workers_faults.py": [
        r"third_death_of_one_batch_raises\[(Signals\.SIGSEGV|11)\]",
        # It ends the program without its `finally` blocks, as SIGKILL does.
        r"workers_die_with_the_training_process\[(Signals\.SIGTERM|15)\]",
    ],
    "test_workers_memory.py": [
        # More descriptors than fit in one message, as with 1000.
        r"batches_of_many_arrays\[300\]",
        r"one_size_are_delivered_under_any_limit\[(2\.2|3\.3|4\.6)\]",
        r"makes_batches_larger_is_delivered_under_any_limit\[4\.5\]",
    ],
    # Worker processes for one tower, where the default run has two.
    "test_processes.py": [r"exactly_once\[1\]"],
    # More estimators and heads of TensorFlow's, with an export as in `mnist_model_fn`; another checkpoint to begin
    # with, and tasks as in test_legacy_cluster.py; a program by itself, as on the page in test_legacy_docs.py.
    "test_legacy_estimator.py": [
        r"under_run\[(wide_and_deep|contrib_premade_heads|text_columns|custom_exporter|warm_start|cluster_tasks)\]",
        "a_program_by_itself",
    ],
    # Each program at one level: those whose pipeline is replaced at `idiom`, which does more than `import`. The planted
    # and clean files are migrated once, in test_the_result_passes_check_but_for_planted_mistakes. The states of an LSTM
    # take longest: test_legacy_programs.py runs their code.
    "test_legacy_migrate.py": [
        r"\[import-truncated_lstm\]",
        r"\[import-(area_until_stop|feed_thread|length_buckets|record_writer|runner_\w+)\]",
        r"\[idiom-(?!area_until_stop|feed_thread|length_buckets|record_writer|runner_)",
        r"\[programs/(area_until_stop|feed_thread|length_buckets|record_writer|runner_\w+)-import\]",
        r"\[programs/(?!area_until_stop|feed_thread|length_buckets|record_writer|runner_)\w+-idiom\]",
        r"\[(planted|clean)/\w+-idiom\]",
        r"twice_changes_nothing_more\[(planted|clean)/",
    ],
    # The program as in test_variables_on_parameter_servers_are_staged, and the command as with a program without
    # TensorFlow.
    "test_legacy_cluster.py": ["launch_runs_a_cluster_of_tensorflow_1"],
    # The same with the first server, as in test_cluster.py with static shares, and without sync.
    "test_cluster_faults.py": [r"model_is_lost\[0\]"],
    # A killed server as in test_cluster_kills.py and test_cluster_faults.py, and an end as in
    # test_a_second_run_on_the_same_servers_starts_afresh.
    "test_cluster.py": [
        "test_two_workers_share_a_source_and_everybody_ends",
        "test_a_killed_parameter_server_takes_everybody_back_to_the_checkpoint",
    ],
    "test_cluster_dynamic.py": [
        "test_a_killed_parameter_server_takes_everybody_back_to_the_checkpoint",
        "test_a_loop_that_fails_leaves_its_batches_to_the_others",
    ],
    # `staged` trains without sync as `lockstep` does, whose cluster is that of `launch`.
    "test_cli_train_cluster.py": [r"reports\[staged-False\]", "test_the_command_of_the_readme"],
    # Each ending of one task, and each task with one ending; and two of the three signals.
    "test_launch.py": [
        r"ends_all_and_gives_the_exit_code\[(chief|ps) 0-os",
        r"gone_after_2_seconds\[(Signals\.SIGTERM|15)\]",
    ],
    # One thread, where the default run has three, and a return to static shares as between runs without gaps.
    "test_dynamic_shares.py": [
        r"(no_step_has_consumed|counts_as_consumed_at_once)\[1\]",
        r"order_is_refused\[static\]",
    ],
    # Lockstep, as in test_towers_and_lockstep.
    "test_data_service.py": [r"is_gone_is_named\[True\]"],
    # Some threads and some towers, where the default run has one of each, and several of both.
    "test_recovery.py": [r"1 threads, 2 towers|3 threads, 1 towers|lockstep, 1 towers"],
    "test_faults_everywhere.py": [r"1 threads, 2 towers|3 threads, 1 towers|lockstep, 1 towers"],
    "test_resume.py": [r"\[one thread\]"],
    "test_resume_skipped.py": [r"_(batches|shard|elements)\[.*num_threads"],
    "test_tfrecord_staged.py": [r"once_in_order\[[23]\]"],
    # One graph again and again, as the pipelines of every kind in test_recovery.py.
    "test_session.py": ["test_the_same_graph_runs_a_hundred_times_without_growing"],
    # Streams, lockstep and datasets are in the other rows, or in the other tests of the file. The saver of a monitored
    # session is sharded.
    "test_resume_shards.py": [
        r"\[one thread\]",
        r"\[(numbers-threads|dataset-one thread|dataset-lockstep)\]",
        r"over_2_1_4_and_2_towers\[lockstep\]",
        r"come_twice_are_counted_and_refused\[threads\]",
        r"have_not_taken_in_turn.*\[dataset\]",
        r"every_saver.*\[options1\]",
    ],
    # The same with threads, as in test_recovery.py.
    "test_stopping.py": [r"test_a_recovery_loses_and_repeats_nothing\[False\]"],
    # A new process, where the default run uses a fork of one that has forgotten the package.
    "test_areas_lifetimes.py": [r"needs_no_package_of_ours\[new\]"],
    "test_project.py": [r"installed_wheel_trains\[new\]"],
}


_with_slow = False


def read_selection(config: pytest.Config) -> None:
    """Note which tests this run selects, for `with_slow`."""
    global _with_slow
    _with_slow = config.option.markexpr != "not slow"


def with_slow() -> bool:
    """Return whether this run includes the slow tests: then others try more examples, and measure more often."""
    return _with_slow


def examples(most: int) -> int:
    """Return how many random examples a test tries: `most` in a run that includes the slow tests."""
    return most if _with_slow else max(4, most // 5)


def mark_slow(items: list[pytest.Item]) -> None:
    """Give the tests of both tables the mark `slow`."""
    cases: dict[Any, list[Any]] = defaultdict(list)
    for item in items:
        if any(re.search(pattern, item.name) for pattern in LEFT_OUT.get(item.path.name, ())):
            item.add_marker(pytest.mark.slow)
        elif getattr(item, "originalname", None) in THINNED.get(item.path.name, ()):
            cases[item.path, item.originalname].append(item)  # type: ignore[attr-defined]
    for group in cases.values():
        for index in redundant([rows(item) for item in group]):
            group[index].add_marker(pytest.mark.slow)


def rows(item: Any) -> set[Any]:
    """Return what identifies the row of each `parametrize`, and of each fixture with parameters, in this case."""
    params = dict(item.callspec.params)
    together = [mark.args[0] for mark in item.iter_markers("parametrize")]
    groups = [names.replace(" ", "").split(",") if isinstance(names, str) else names for names in together]
    alone = [[name] for name in params if not any(name in names for names in groups)]
    return {tuple((name, id(params[name])) for name in names) for names in [*groups, *alone]}


def redundant(cases: list[set[Any]]) -> list[int]:
    """Return the indexes of the cases whose values are all among those of the others.

    Each case that is kept adds most values, and of equal ones those that the fewest have.
    """
    left, used = list(range(len(cases))), Counter[Any]()

    def worth(index: int) -> tuple[int, int]:
        counts = [used[value] for value in cases[index]]
        return counts.count(0), -sum(counts)

    while left:
        best = max(left, key=worth)
        if worth(best)[0] == 0:
            break
        used.update(cases[best])
        left.remove(best)
    return left
