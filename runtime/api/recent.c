#include "runtime/api/recent.h"
#include <string.h>

static const size_t MOST_BYTES = (size_t)64 << 20;   // of what the artefacts were made of

void recent_open(RecentArtefacts *recent) {
    memset(recent, 0, sizeof *recent);
    pthread_mutex_init(&recent->lock, NULL);
}

static void move_to_front(RecentArtefacts *recent, int at) {
    TilecArtefact *artefact = recent->items[at];
    memmove(&recent->items[1], &recent->items[0], (size_t)at * sizeof *recent->items);
    recent->items[0] = artefact;
}

static void drop_last(RecentArtefacts *recent) {
    TilecArtefact *last = recent->items[--recent->count];
    recent->bytes -= last->bytes;
    artefact_release(last);
}

void recent_close(RecentArtefacts *recent) {
    while (recent->count) drop_last(recent);
    pthread_mutex_destroy(&recent->lock);
}

TilecArtefact *recent_find(RecentArtefacts *recent, CacheHash key) {
    TilecArtefact *found = NULL;
    pthread_mutex_lock(&recent->lock);
    for (int i = 0; i < recent->count && !found; i++) {
        if (!cache_hash_equal(recent->items[i]->key, key)) continue;
        move_to_front(recent, i);
        found = artefact_hold(recent->items[0]);
    }
    pthread_mutex_unlock(&recent->lock);
    return found;
}

static void drop_key(RecentArtefacts *recent, CacheHash key) {
    for (int i = 0; i < recent->count; i++) {
        if (!cache_hash_equal(recent->items[i]->key, key)) continue;
        TilecArtefact *old = recent->items[i];
        memmove(&recent->items[i], &recent->items[i + 1], (size_t)(--recent->count - i) * sizeof *recent->items);
        recent->bytes -= old->bytes;
        artefact_release(old);
        return;
    }
}

void recent_keep(RecentArtefacts *recent, TilecArtefact *artefact) {
    if (artefact->bytes > MOST_BYTES) return;
    pthread_mutex_lock(&recent->lock);
    drop_key(recent, artefact->key);   // of imports that have changed, or of another thread
    while (recent->count == MOST_RECENT || recent->bytes + artefact->bytes > MOST_BYTES) drop_last(recent);
    recent->items[recent->count++] = artefact_hold(artefact);
    recent->bytes += artefact->bytes;
    move_to_front(recent, recent->count - 1);
    pthread_mutex_unlock(&recent->lock);
}
