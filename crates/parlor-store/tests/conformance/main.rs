//! What every store does, sentence by sentence, in every store.

#[path = "../common/mod.rs"]
mod common;

use parlor_store::{FaultyStore, MemoryStore, SqliteStore};

/// Names the sentences of each file and runs them in each store.
macro_rules! suite {
    ($($file:ident { $($sentence:ident,)* })*) => {
        $(mod $file;)*

        mod in_memory {
            $(mod $file {
                $(#[test]
                fn $sentence() {
                    crate::$file::$sentence(&crate::MemoryStore::default());
                })*
            })*
        }

        mod in_sqlite {
            $(mod $file {
                $(#[test]
                fn $sentence() {
                    let dir = tempfile::tempdir().unwrap();
                    crate::$file::$sentence(&crate::SqliteStore::open(&dir.path().join("db")).unwrap());
                })*
            })*
        }

        mod in_a_faulty_one_that_does_not_fail {
            $(mod $file {
                $(#[test]
                fn $sentence() {
                    crate::$file::$sentence(&crate::FaultyStore::new(crate::MemoryStore::default()));
                })*
            })*
        }
    };
}

suite! {
    sessions {
        a_session_is_what_was_written,
        a_session_is_replaced_and_keeps_what_is_in_it,
        hard_texts_are_kept,
        extreme_times_are_kept_and_ordered,
        the_latest_come_first_and_equals_by_id,
        pages_follow_each_other,
        what_happens_between_pages_neither_repeats_nor_skips_older_ones,
        a_cursor_needs_no_session,
        each_filter_keeps_what_it_says,
        filters_work_together_and_with_pages,
        a_deleted_session_is_gone_with_all_that_was_in_it,
        owned_sessions_are_listed_on_request_and_deleted_with_their_owners,
    }
    slots {
        slots_are_read_by_name,
        a_slot_is_replaced_or_removed,
        slots_that_changed_after_a_number,
        hard_texts_are_kept,
        a_slot_needs_its_session,
    }
    entries {
        entries_are_read_in_the_order_of_creation,
        an_entry_without_content_has_an_empty_one,
        a_head_is_replaced_and_the_content_stays,
        content_is_replaced,
        content_grows,
        hard_texts_are_kept,
        a_long_content_is_kept,
        characters_of_any_length_are_kept_at_any_place,
        many_appends_are_the_text_they_are,
        entries_that_changed_after_a_number,
        an_earlier_number_does_not_turn_back,
        pages_are_as_long_as_bytes_allow,
        pages_count_empty_entries_as_nothing,
        writes_need_their_session_and_appends_their_entry,
        numbers_have_limits,
    }
    copies {
        a_copy_has_what_was_there,
        many_entries_are_copied_in_any_order,
        many_copies_are_refused_for_one_of_them,
        entries_with_long_heads_are_copied,
        a_copy_may_have_another_head,
        what_is_appended_to_a_copy_stays_there,
        what_is_appended_to_the_original_stays_there,
        replaced_content_stays_on_its_side,
        a_new_head_leaves_a_copy_what_it_is,
        numbers_of_the_other_session_do_not_count,
        a_copy_of_a_copy,
        a_copy_outlives_the_original,
        the_original_outlives_a_copy,
        copies_in_one_session,
        an_empty_entry_is_copied,
        a_copy_needs_its_sessions_and_entries,
        a_copy_replaces_nothing,
    }
    batches {
        a_batch_is_taken_in_its_order,
        a_batch_is_taken_as_a_whole_or_not_at_all,
        a_refused_copy_leaves_nothing,
        batches_are_taken_in_the_order_of_the_calls,
        an_empty_batch_is_done,
        durable_and_other_batches_mix,
        what_was_reported_as_done_can_be_read,
        many_threads_write_at_once,
    }
    search {
        what_was_said_is_found,
        a_query_is_taken_apart_alike_everywhere,
        any_query_is_answered,
        a_replaced_content_is_not_found_by_its_old_words,
        what_is_appended_leaves_the_words_until_new_ones_come,
        words_are_replaced_and_removed,
        words_of_an_earlier_state_are_not_taken,
        words_that_are_there_may_stay,
        a_copy_is_found_once_where_it_was_first,
        a_copy_is_found_when_the_first_is_gone,
        a_copy_is_found_when_the_first_is_replaced,
        a_copy_that_is_changed_is_found_by_itself,
        words_of_a_copy_are_its_own,
        copies_of_copies_are_found_in_the_oldest_that_is_left,
        a_deleted_session_is_not_found,
        a_session_is_found_by_its_title,
        each_filter_keeps_what_it_says,
        the_best_come_first,
        pages_follow_each_other,
        words_need_their_entry,
        a_refused_batch_leaves_no_words,
        nothing_is_unindexed_in_a_new_store,
    }
    values {
        a_value_is_kept_replaced_and_removed,
        hard_texts_are_kept,
    }
}
