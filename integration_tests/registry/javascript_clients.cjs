// Writes and reads records through a registry with two clients of others. Arguments: its URL, and a topic. Prints one
// object of JSON: for each client what it was answered, the records that it wrote, in base64, and what it read.
const kafkajs = require('@kafkajs/confluent-schema-registry')
const confluent = require('@confluentinc/schemaregistry')

const [url, topic] = process.argv.slice(2)
const ride = {
  type: 'record', name: 'Ride', namespace: 'example',
  fields: [
    { name: 'id', type: 'long' },
    { name: 'fare', type: ['null', 'double'], default: null },
    { name: 'tags', type: { type: 'array', items: 'string' } },
  ],
}
const withTip = { ...ride, fields: [...ride.fields, { name: 'tip', type: 'int', default: 7 }] }
const jsonSchema = { type: 'object', properties: { id: { type: 'integer' } }, required: ['id'] }
const protobuf = 'syntax = "proto3"; package example; message Stop { int64 id = 1; string name = 2; }'
const rows = [{ id: 1, fare: null, tags: [] }, { id: 2, fare: 2.5, tags: ['a', 'ü'] }]
const base64 = (values) => values.map((each) => Buffer.from(each).toString('base64'))

async function byKafkajs() {
  const registry = new kafkajs.SchemaRegistry({ host: url })
  const subject = `${topic}-value`
  const { id } = await registry.register({ type: 'AVRO', schema: JSON.stringify(ride) }, { subject })
  const again = await registry.register({ type: 'AVRO', schema: JSON.stringify(withTip) }, { subject })
  const latest = await registry.getLatestSchemaId(subject)
  const found = await registry.getRegistryId(subject, 1)
  const incompatible = { ...ride, fields: [...ride.fields, { name: 'x', type: 'int' }] }
  const refused = await registry
    .register({ type: 'AVRO', schema: JSON.stringify(incompatible) }, { subject })
    .then(() => null, (error) => error.message)
  const written = []
  for (const row of rows) written.push(await registry.encode(id, row))
  const read = []
  for (const value of written) read.push(await registry.decode(value))
  const others = {}
  for (const [type, schema, value] of [
    ['JSON', JSON.stringify(jsonSchema), { id: 3 }],
    ['PROTOBUF', protobuf, { id: 4, name: 'ü' }],
  ]) {
    const other = await registry.register({ type, schema }, { subject: `${topic}-${type}-value` })
    const decoded = await registry.decode(await registry.encode(other.id, value))
    others[type] = JSON.parse(JSON.stringify(decoded))
  }
  return { ids: { id, again: again.id, latest, found }, refused, written: base64(written), read, others }
}

async function byConfluent() {
  const client = confluent.SchemaRegistryClient.newClient({ baseURLs: [url] })
  const subject = `${topic}-confluent-value`
  const id = await client.register(subject, { schema: JSON.stringify(ride), schemaType: 'AVRO' })
  const metadata = await client.getLatestSchemaMetadata(subject)
  const versions = await client.getAllVersions(subject)
  const compatible = await client.testCompatibility(subject, 'latest', { schema: JSON.stringify(withTip), schemaType: 'AVRO' })
  await client.updateCompatibility(subject, 'FULL')
  const level = await client.getCompatibility(subject)
  const serializer = new confluent.AvroSerializer(client, confluent.SerdeType.VALUE, { autoRegisterSchemas: false, useLatestVersion: true })
  const deserializer = new confluent.AvroDeserializer(client, confluent.SerdeType.VALUE, {})
  const written = []
  for (const row of rows) written.push(await serializer.serialize(`${topic}-confluent`, row))
  const read = []
  for (const value of written) read.push(await deserializer.deserialize(`${topic}-confluent`, value))
  const json = new confluent.JsonSerializer(client, confluent.SerdeType.VALUE, { autoRegisterSchemas: false, useLatestVersion: true })
  await client.register(`${topic}-json-value`, { schema: JSON.stringify(jsonSchema), schemaType: 'JSON' })
  const jsonBack = new confluent.JsonDeserializer(client, confluent.SerdeType.VALUE, {})
  const document = await jsonBack.deserialize(`${topic}-json`, await json.serialize(`${topic}-json`, { id: 3 }))
  await client.deleteSubject(`${topic}-json-value`)
  await client.deleteSubject(`${topic}-json-value`, true)
  const subjects = await client.getAllSubjects()
  return { id, latest: metadata.id, versions, compatible, level, written: base64(written), read, document, deleted: !subjects.includes(`${topic}-json-value`) }
}

const plain = (_, value) => (typeof value === 'bigint' ? Number(value) : value)
Promise.all([byKafkajs(), byConfluent()])
  .then(([first, second]) => console.log(JSON.stringify({ kafkajs: first, confluent: second }, plain)))
  .catch((error) => { console.error(error); process.exit(1) })
