/* SPDX-License-Identifier: Apache-2.0 */
/* A doubly linked ring, embedded. An empty list points to itself. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_insert_(struct list *n, struct list *prev,
				struct list *next)
{
	n->prev = prev;
	n->next = next;
	prev->next = n;
	next->prev = n;
}

static inline void list_push(struct list *head, struct list *n)
{
	list_insert_(n, head->prev, head);
}

static inline void list_push_front(struct list *head, struct list *n)
{
	list_insert_(n, head, head->next);
}

/* Removes @n and leaves it empty, so that a second removal does nothing. */
static inline void list_remove(struct list *n)
{
	n->next->prev = n->prev;
	n->prev->next = n->next;
	list_init(n);
}

/* Moves all of @from behind the entries of @to. */
static inline void list_splice(struct list *to, struct list *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

#define list_entry(p, type, member) \
	((type *)((char *)(p)-offsetof(type, member)))
#define list_first(head, type, member) list_entry((head)->next, type, member)

#define list_each(p, head) \
	for ((p) = (head)->next; (p) != (head); (p) = (p)->next)
#define list_each_safe(p, n, head)                               \
	for ((p) = (head)->next, (n) = (p)->next; (p) != (head); \
	     (p) = (n), (n) = (p)->next)

#endif
